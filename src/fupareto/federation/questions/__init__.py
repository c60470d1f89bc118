"""Questions that a server can ask a client, with the client-side answers and their checks."""

from fupareto.federation.questions.base import ANSWERS, QUESTIONS, Answer, Failure, Question, diverged, flaw
from fupareto.federation.questions.fedau import TrainHead
from fupareto.federation.questions.fededitor import Edit
from fupareto.federation.questions.fupga import TrainWithin
from fupareto.federation.questions.gradients import Gradient, LossAndGradient, Losses, PseudoGradient, TrialLosses
from fupareto.federation.questions.measuring import Compare, Compared, Evaluate, Evaluated, Signalled, Signals
from fupareto.federation.questions.training import Train, Trained

__all__ = [
    "ANSWERS",
    "QUESTIONS",
    "Answer",
    "Compare",
    "Compared",
    "Edit",
    "Evaluate",
    "Evaluated",
    "Failure",
    "Gradient",
    "LossAndGradient",
    "Losses",
    "PseudoGradient",
    "Question",
    "Signalled",
    "Signals",
    "Train",
    "TrainHead",
    "TrainWithin",
    "Trained",
    "TrialLosses",
    "diverged",
    "flaw",
]
