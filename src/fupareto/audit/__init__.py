"""Measurements of a model against a request: forgetting, utility, cost."""
