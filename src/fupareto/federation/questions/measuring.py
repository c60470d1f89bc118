"""Questions that measure a model on a client's data: counts by split, signals per sample, comparisons of two models.

Labels and inputs stay with the client: what needs them is computed there.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.questions.base import NUMBERS, Answer, Question
from fupareto.federation.questions.schema import MOST, Count, Measured
from fupareto.federation.request import Splits
from fupareto.tasks import signals
from fupareto.tasks.base import joined
from fupareto.tasks.samples import Samples, samples_of


@dataclass(frozen=True)
class Evaluated(Answer):
    """Number of samples, right answers and mean loss by split, and the summary numbers of the task."""

    counts: Measured


@dataclass(frozen=True)
class Evaluate(Question):
    """Count right answers on the named splits.

    A client that answers without one of the splits, or on no samples, is missing: it was not measured.

    Attributes:
        w: The model (parameters,).
        splits: Names of splits. ``clean|train`` stands for the first of the two that the client has; a client
            that does not have ``trigger?`` may leave it out.
    """

    answered_by: ClassVar[type[Answer]] = Evaluated

    w: Tensor
    splits: tuple[str, ...]

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Evaluated:
        """Return the counts of every split that the client has."""
        parameters.write(module, self.w)
        module.eval()
        counts = {}
        for names in self.splits:
            name = next((name for name in names.rstrip("?").split("|") if name in splits), None)
            if name is None:
                continue
            counts[name] = _measured(module, samples_of(splits[name]))
        return Evaluated(counts=counts)

    def flaw(self, answer: Evaluated, size: int) -> str | None:
        """Return why the counts cannot be used, or None: every split must have been measured, and no other."""
        asked = {names.rstrip("?"): names for names in self.splits}
        if extra := set(answer.counts) - {name for names in asked for name in names.split("|")}:
            return f"answered with '{min(extra)}', which it was not asked for"
        for names, written in asked.items():
            found = [answer.counts[name] for name in names.split("|") if name in answer.counts]
            if len(found) != 1 and not (written.endswith("?") and not found):
                return f"answered without a measurement of '{names.replace('|', ' or ')}'"
        return next((reason for split, c in answer.counts.items() if (reason := _miscounted(split, c))), None)


def _miscounted(split: str, counts: dict[str, float]) -> str | None:
    """Return why the counts of a split cannot be those of some samples, or None."""
    right, samples = counts["right"], counts["samples"]
    if not (0 <= right <= samples <= MOST) or type(right) not in (int, float) or type(samples) is not int:
        return f"counted {right} correct predictions in {samples} samples of '{split}'"
    if not samples:
        return f"answered with a measurement of '{split}' on no samples"
    return None if type(counts["loss"]) in (int, float) else f"answered without the loss on '{split}'"


@torch.no_grad()
def _measured(module: nn.Module, samples: Samples) -> dict[str, float]:
    """Return the counts of one split, and the summary numbers of its task."""
    task, right, loss, evidence = samples.task, 0.0, 0.0, []
    for batch in samples.batches():
        outputs = samples.outputs(module, batch)
        found = task.tally(outputs, batch.targets)
        right, loss = right + found[0], loss + found[1]
        evidence.append(task.evidence(outputs, batch.targets))
    own = task.measures(joined(evidence)) if evidence and evidence[0] else {}
    return {"samples": len(samples), "right": right, "loss": loss / max(len(samples), 1), **own}


@dataclass(frozen=True)
class Signalled(Answer):
    """Signals of every sample, in the order of the client's samples; no labels and no inputs.

    Attributes:
        loss: Loss (samples,).
        margin: By how much the right answer leads (samples,).
        entropy: Entropy of the outputs (samples,).
        scaled: log(p / (1 - p)) of the right answer's probability p (samples,).
        outputs: The first ten sorted outputs, as logarithms of probabilities (samples, at most 10).
    """

    loss: Tensor
    margin: Tensor
    entropy: Tensor
    scaled: Tensor
    outputs: Tensor


@dataclass(frozen=True)
class Signals(Question):
    """Signals per sample on the first of the named splits that the client has.

    For audits only: membership attacks use what a model gives away of single samples.

    Attributes:
        w: The model (parameters,).
        splits: Names of splits, in order of preference.
    """

    answered_by: ClassVar[type[Answer]] = Signalled

    w: Tensor
    splits: tuple[str, ...]

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Signalled:
        """Return the signals of the split, in float64."""
        samples = _first(splits, self.splits)
        parameters.write(module, self.w)
        module.eval()
        with torch.no_grad():
            found = [samples.task.signals(samples.outputs(module, b), b.targets) for b in samples.batches()]
        seen = signals.joined(found)
        return Signalled(**{name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in vars(seen).items()})

    def flaw(self, answer: Signalled, size: int) -> str | None:
        """Return why the shapes or values cannot be used, or None."""
        count = len(answer.loss)
        for name, values in vars(answer).items():
            shaped = values.dim() == (2 if name == "outputs" else 1) and len(values) == count > 0
            if not shaped or values.dtype != torch.float64 or (name == "outputs" and values.shape[1] > signals.FIRST):
                return f"answered with {name} of shape {tuple(values.shape)} {values.dtype} for {count} samples"
            if not bool(torch.isfinite(values).all()):
                return f"{NUMBERS} that are not finite"
        return None


@dataclass(frozen=True)
class Compared(Answer):
    """How far the outputs of two models are apart.

    Attributes:
        samples: Number of samples.
        divergence: Mean divergence, between 0 and 1.
        variance: Variance of the divergence over samples; 0 for a single sample.
        disagreement: Share of samples on which the answers differ.
    """

    samples: Count
    divergence: float
    variance: float
    disagreement: float


@dataclass(frozen=True)
class Compare(Question):
    """Compare two models on the first of the named splits that the client has; both are sent to the client.

    Attributes:
        w: A model (parameters,).
        other: The model that it is compared with (parameters,).
        splits: Names of splits, in order of preference.
    """

    answered_by: ClassVar[type[Answer]] = Compared

    w: Tensor
    other: Tensor
    splits: tuple[str, ...]

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Compared:
        """Return the divergence of the outputs and the share of answers that differ."""
        samples = _first(splits, self.splits)
        module.eval()
        both = []
        with torch.no_grad():
            for batch in samples.batches():
                outputs = []
                for w in (self.w, self.other):
                    parameters.write(module, w)
                    outputs.append(samples.outputs(module, batch))
                both.append(samples.task.apart(outputs[0], outputs[1], batch.targets))
        bits = torch.cat([pair[0] for pair in both]).cpu().numpy()
        differs = torch.cat([pair[1] for pair in both])
        variance = float(bits.var(ddof=1)) if len(bits) > 1 else 0.0
        return Compared(len(bits), float(bits.mean()), variance, float(differs.mean()))

    def flaw(self, answer: Compared, size: int) -> str | None:
        """Return why the numbers cannot be used, or None."""
        values = (answer.divergence, answer.variance, answer.disagreement)
        if not np.isfinite(values).all():
            return f"{NUMBERS} that are not finite"
        if answer.samples < 1 or min(values) < -1e-9 or max(answer.divergence, answer.disagreement) > 1 + 1e-9:
            return f"compared {answer.samples} samples with a divergence of {answer.divergence}"
        return None


def _first(splits: Splits, names: tuple[str, ...]) -> Samples:
    """Return the first of the named splits that the client has."""
    found = next((splits[name] for name in names if name in splits), None)
    if found is None:
        raise ValueError(f"the client has no split {' or '.join(names)}")
    return samples_of(found)
