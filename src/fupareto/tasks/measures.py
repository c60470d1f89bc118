"""Summary numbers that tasks are usually judged by: AUC, errors, perplexity, intersection over union."""

import math

import torch
from torch import Tensor

LARGEST = 690.0  # larger mean losses count as this one, so that a perplexity stays finite


def auc(outputs: Tensor, targets: Tensor) -> float:
    """Return the area under the ROC curve; 0.5 where one of the two labels is absent. Ties count half."""
    order, inverse, counts = torch.unique(outputs.double(), return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    rank = (last - (counts.double() - 1) / 2)[inverse]
    yes = targets > 0.5
    positive, negative = int(yes.sum()), int((~yes).sum())
    if not positive or not negative or not len(order):
        return 0.5
    return float((rank[yes].sum() - positive * (positive + 1) / 2) / (positive * negative))


def mean_auc(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean AUC over the labels (columns) that occur and are absent; 0.5 if there is none."""
    found = [
        auc(outputs[:, k], targets[:, k])
        for k in range(targets.shape[1])
        if bool((targets[:, k] > 0.5).any()) and bool((targets[:, k] < 0.5).any())
    ]
    return sum(found) / len(found) if found else 0.5


def errors(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the mean and median absolute error, and R² (0 where all targets are equal)."""
    error, centred = (outputs - targets).double(), (targets - targets.mean(0)).double()
    spread = float(centred.square().sum())
    return {
        "mae": float(error.abs().mean()),
        "median_error": float(error.abs().median()),
        "r2": 1 - float(error.square().sum()) / spread if spread > 0 else 0.0,
    }


def perplexity(loss: float, count: float) -> float:
    """Return the exponential of the mean loss per token."""
    return math.exp(min(loss / max(count, 1.0), LARGEST))


def overlap(answers: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the intersection and the union of answers and labels for every class (2, classes)."""
    both = torch.bincount(labels[answers == labels], minlength=classes)
    either = torch.bincount(labels, minlength=classes) + torch.bincount(answers, minlength=classes) - both
    return torch.stack([both, either]).double()


def mean_iou(overlaps: Tensor) -> float:
    """Return the mean over the classes that occur of intersection over union."""
    both, either = overlaps
    occurs = either > 0
    return float((both[occurs] / either[occurs]).mean()) if bool(occurs.any()) else 0.0
