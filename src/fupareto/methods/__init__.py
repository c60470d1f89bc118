"""The algorithms, one file each, and how a method is found by name."""

from fupareto.methods.base import Method, State
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.fupareto.method import FUPareto

__all__ = ["FUPareto", "FedAvg", "Method", "State"]
