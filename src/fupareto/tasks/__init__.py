"""Losses that clients minimise, by name."""
