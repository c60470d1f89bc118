"""Can an answer be used? Whatever somebody else's code has put into it, this says so before a method sees it."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fupareto.federation.questions import (
    Answer,
    Edit,
    Evaluate,
    Evaluated,
    Failure,
    Gradient,
    LossAndGradient,
    Losses,
    Predict,
    Predicted,
    PseudoGradient,
    Question,
    Train,
    Trained,
    TrainHead,
    TrainWithin,
    TrialLosses,
)

_EXPECTED: dict[type[Question], type[Answer]] = {
    Train: Trained,
    TrainWithin: Trained,
    TrainHead: Trained,
    Edit: Trained,
    Gradient: LossAndGradient,
    PseudoGradient: LossAndGradient,
    TrialLosses: Losses,
    Evaluate: Evaluated,
    Predict: Predicted,
}


NUMBERS = "answered with numbers"  # so begins every reason that tells of a model that has diverged
LARGEST = 1e10  # no weight and no derivative of a model that works is beyond it, and one such client ruins a mean


def flaw(question: Question, answer: Answer | Failure, size: int) -> str | None:
    """Say why an answer cannot be used, whatever somebody else's code has put into it; None if it can."""
    try:
        return answer.reason if isinstance(answer, Failure) else _flaw(question, answer, size)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        return f"answered with something malformed: {type(error).__name__}: {error}"


def diverged(missing: Mapping[str, str]) -> bool:
    """Say whether all who are missing are so because of their numbers: they were there, and their models are ruined."""
    return bool(missing) and all(reason.startswith(NUMBERS) for reason in missing.values())


def _flaw(question: Question, answer: Answer, size: int) -> str | None:
    """Check the type, the shape, and that numbers are finite."""
    expected = _EXPECTED[type(question)]
    if not isinstance(answer, expected):
        return f"answered with {type(answer).__name__}, not {expected.__name__}"
    match answer:
        case Trained(w=vector) | LossAndGradient(gradient=vector):
            size = question.head.numel() if isinstance(question, TrainHead) else size
            if not isinstance(vector, Tensor) or tuple(vector.shape) != (size,):
                return f"answered with shape {tuple(getattr(vector, 'shape', ()))}, not ({size},)"
            if vector.dtype != torch.float32:
                return f"answered in {vector.dtype}, not torch.float32"
            if reason := _implausible(vector):
                return reason
            if isinstance(answer, Trained) and not 1 <= answer.size < np.inf:
                return f"trained on {answer.size} samples"
            if isinstance(answer, LossAndGradient) and not (np.isfinite(answer.loss) and answer.steps >= 1):
                return f"answered with loss {answer.loss} after {answer.steps} steps"
        case Predicted(logits=logits, labels=labels):
            if logits.dim() != 2 or tuple(labels.shape) != (len(logits),) or not len(logits):
                return f"answered with outputs of shape {tuple(logits.shape)} for labels of {tuple(labels.shape)}"
            if not bool(torch.isfinite(logits).all()):
                return f"{NUMBERS} that are not finite"
            if labels.dtype != torch.int64 or not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
                return f"answered with labels that are not classes 0 to {logits.shape[1] - 1}"
        case Losses(losses=losses):
            assert isinstance(question, TrialLosses)
            if np.array(losses, np.float64).shape != (len(question.steps),):
                return f"answered {len(losses)} losses for {len(question.steps)} trial steps"
        case Evaluated(counts=counts):
            for split, c in counts.items():
                if not 0 <= c["right"] <= c["samples"]:
                    return f"counted {c['right']} right answers in {c['samples']} samples of '{split}'"
    return None


def _implausible(vector: Tensor) -> str | None:
    low, high = (float(end) for end in torch.aminmax(vector))
    if not np.isfinite(low + high):
        return f"{NUMBERS} that are not finite"
    if max(-low, high) > LARGEST:
        return f"{NUMBERS} as large as {max(-low, high):.1e}, beyond {LARGEST:.0e}"
    return None
