"""Flower app: handwritten digits at ten clients."""
