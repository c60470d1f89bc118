"""Measurements of a model against a request, attacks on it, and the checks made of them."""
