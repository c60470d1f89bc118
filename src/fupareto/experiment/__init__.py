"""How does an experiment file become a federation, a request, and runs?"""

from fupareto.experiment.audit import audit, examine
from fupareto.experiment.setting import (
    Progress,
    default_request,
    federation,
    forgetter,
    no_progress,
    stored_experiment,
)
from fupareto.experiment.train import train
from fupareto.experiment.unlearn import unlearn

__all__ = [
    "Progress",
    "audit",
    "default_request",
    "examine",
    "federation",
    "forgetter",
    "no_progress",
    "stored_experiment",
    "train",
    "unlearn",
]
