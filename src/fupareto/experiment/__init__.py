"""Runs from an experiment file: its federation and request, training, unlearning and audit."""

from fupareto.experiment.audit import audit, examine, retrain_into
from fupareto.experiment.duration import Agree
from fupareto.experiment.host import SILENT, Host
from fupareto.experiment.requests import how, replay, stored
from fupareto.experiment.setting import default_request, federation, forgetter, stored_experiment
from fupareto.experiment.train import train
from fupareto.experiment.unlearn import unlearn

__all__ = [
    "SILENT",
    "Agree",
    "Host",
    "audit",
    "default_request",
    "examine",
    "federation",
    "forgetter",
    "how",
    "replay",
    "retrain_into",
    "stored",
    "stored_experiment",
    "train",
    "unlearn",
]
