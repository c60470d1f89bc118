"""Questions that a server can ask a client, with the client-side answers and their checks."""

from fupareto.federation.questions.attest import Attest, Attested
from fupareto.federation.questions.base import ANSWERS, QUESTIONS, Answer, Failure, Question, diverged, flaw
from fupareto.federation.questions.digest import Digest, Digested
from fupareto.federation.questions.fedau import TrainHead
from fupareto.federation.questions.fededitor import Edit
from fupareto.federation.questions.fupga import TrainWithin
from fupareto.federation.questions.gradients import Gradient, LossAndGradient, Losses, PseudoGradient, TrialLosses
from fupareto.federation.questions.measuring import Compare, Compared, Evaluate, Evaluated, Signalled, Signals
from fupareto.federation.questions.ridge import Summed, Sums
from fupareto.federation.questions.training import Train, Trained

__all__ = [
    "ANSWERS",
    "QUESTIONS",
    "Answer",
    "Attest",
    "Attested",
    "Compare",
    "Compared",
    "Digest",
    "Digested",
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
    "Summed",
    "Sums",
    "Train",
    "TrainHead",
    "TrainWithin",
    "Trained",
    "TrialLosses",
    "diverged",
    "flaw",
]
