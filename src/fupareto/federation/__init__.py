"""Federations: the questions that a server can ask its clients, and the simulated engine."""

from fupareto.federation.collected import Local
from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.federation.simulated import SimulatedFederation

__all__ = ["Federation", "Local", "Request", "SimulatedFederation"]
