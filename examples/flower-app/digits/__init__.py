"""Handwritten digits at ten clients, as a Flower app."""
