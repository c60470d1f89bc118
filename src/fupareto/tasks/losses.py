"""Losses that clients minimise. A loss is specified by name and options, so that it can be sent over a network.

Every loss maps logits ``(decisions, classes)`` and labels ``(decisions,)`` to one value per decision; which decisions
the outputs of a model stand for is defined by the task (``base.py``). A client's objective is the mean over its data.
Retained clients minimise ``ce``, which stands for the task's own loss, forget clients one of the others. Some losses
also use the logits of a reference model on the same inputs.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fupareto.errors import UserError


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, eq. (1)."""
    return F.cross_entropy(logits, labels, reduction="none")


def mbs(logits: Tensor, labels: Tensor, delta: float = 1e-3, form: str = "separating") -> Tensor:
    """Minimum Boundary Shift, eq. (3): ReLU(z_c - z_next ± delta), z_next the largest other logit.

    The paper prints ``- delta``, with which the loss is zero for samples still predicted as c by a margin of up to
    delta. Its text asks for separation, so the default adds delta: a loss of zero means that the label is no longer
    predicted.

    Args:
        logits: (batch, classes).
        labels: (batch,).
        delta: Margin.
        form: ``"separating"`` adds delta; ``"printed"`` subtracts it.
    """
    target = logits.gather(1, labels[:, None]).squeeze(1)
    runner_up = logits.scatter(1, labels[:, None], -math.inf).max(1).values
    return F.relu(target - runner_up + (delta if form == "separating" else -delta))


def uce(logits: Tensor, labels: Tensor) -> Tensor:
    """Unlearning cross-entropy of FedOSD: -log(1 - p_y / 2), bounded by log 2."""
    return -torch.log1p(-0.5 * F.softmax(logits, 1).gather(1, labels[:, None]).squeeze(1))


def kl(logits: Tensor, labels: Tensor, direction: str = "uniform") -> Tensor:
    """Divergence from the uniform distribution: KL(uniform || p), or KL(p || uniform) with ``direction="model"``."""
    log_p = F.log_softmax(logits, 1)
    if direction == "uniform":
        return -log_p.mean(1) - math.log(logits.shape[1])
    return (log_p.exp() * log_p).sum(1) + math.log(logits.shape[1])


def ascent(logits: Tensor, labels: Tensor) -> Tensor:
    """Gradient ascent: minus cross-entropy, unbounded below."""
    return -ce(logits, labels)


def npo(logits: Tensor, labels: Tensor, reference: Tensor, b: float = 1.0) -> Tensor:
    """Negative preference optimisation: (2/b) log(1 + (p_y / q_y)^b), q the probabilities of the reference model.

    The loss is flat once the label is unlikely. q_y is clamped to at least 1e-6, for samples that the reference model
    does not predict.
    """
    log_p = F.log_softmax(logits, 1).gather(1, labels[:, None]).squeeze(1)
    log_q = F.log_softmax(reference, 1).gather(1, labels[:, None]).squeeze(1).clamp(min=math.log(1e-6))
    return (2 / b) * F.softplus(b * (log_p - log_q))


def imitate(logits: Tensor, labels: Tensor, reference: Tensor) -> Tensor:
    """Cross-entropy with the labels that the reference model predicts; ``labels`` is not used."""
    return ce(logits, reference.argmax(1))


REFERENCED = ("npo", "imitate")  # losses that use the logits of a reference model
_LOSSES: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "ce": (ce, {}),
    "mbs": (mbs, {"delta": float, "form": ("separating", "printed")}),
    "uce": (uce, {}),
    "kl": (kl, {"direction": ("uniform", "model")}),
    "ascent": (ascent, {}),
    "npo": (npo, {"b": float}),
    "imitate": (imitate, {}),
}


class Loss:
    """A loss by name, e.g. ``Loss("mbs", delta=1e-3)``.

    Args:
        name: ``ce``, ``mbs``, ``uce``, ``kl``, ``ascent``, ``npo`` or ``imitate``.
        **options: Options of the loss: ``delta`` and ``form`` of ``mbs``, ``direction`` of ``kl``, ``b`` of ``npo``.

    Attributes:
        name: Name of the loss.
        options: Options that were given.
    """

    def __init__(self, name: str, **options: float | str) -> None:
        if name not in _LOSSES:
            raise UserError(f"unknown loss '{name}'; there are {', '.join(_LOSSES)}")
        self.name, self.options = name, options
        self._function, known = _LOSSES[name]
        for key, value in options.items():
            if key not in known:
                raise UserError(f"loss '{name}' has no option '{key}'; it has {', '.join(known) or 'none'}")
            allowed = known[key]
            if isinstance(allowed, tuple) and value not in allowed:
                raise UserError(f"loss '{name}': {key} must be one of {', '.join(allowed)}, not {value!r}")
            if allowed is float and not (isinstance(value, int | float) and math.isfinite(value)):
                raise UserError(f"loss '{name}': {key} must be a finite number, not {value!r}")

    @property
    def referenced(self) -> bool:
        """Whether the loss needs the logits of a reference model."""
        return self.name in REFERENCED

    @property
    def lowest(self) -> float:
        """The lowest value that the loss can have."""
        return -math.inf if self.name == "ascent" else 0.0

    def needed(self, reference: Tensor | None) -> Tensor:
        """Return the reference; refuse a missing one."""
        if reference is None:
            raise UserError(f"loss '{self.name}' needs the logits of a reference model, and none were given")
        return reference

    def __call__(self, logits: Tensor, labels: Tensor, reference: Tensor | None = None) -> Tensor:
        """Return the loss of every decision; ``reference`` is the logits of the reference model."""
        if not self.referenced:
            return self._function(logits, labels, **self.options)
        return self._function(logits, labels, self.needed(reference), **self.options)

    def __repr__(self) -> str:
        return f"Loss({', '.join([repr(self.name), *(f'{k}={v!r}' for k, v in self.options.items())])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loss) and (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.options.items()))))
