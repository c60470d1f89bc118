"""Runs of a method: the loop, the run directory and the memory check."""
