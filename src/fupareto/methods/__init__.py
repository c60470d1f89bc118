"""Federated training and unlearning methods, one file each."""

from fupareto.methods.base import Method, State
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.fupareto.method import FUPareto

__all__ = ["FUPareto", "FedAvg", "Method", "State"]
