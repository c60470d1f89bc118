"""The contract of a task, and what every task shares."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto.errors import UserError
from fupareto.tasks import criteria, signals
from fupareto.tasks.calls import call
from fupareto.tasks.criteria import Criterion
from fupareto.tasks.losses import Loss
from fupareto.tasks.trees import Tree

CRITERION = "criterion"


@dataclass(frozen=True)
class Decisions:
    """The choices between classes that a task consists of: one per sample, or several, such as one per token.

    Attributes:
        logits: (decisions, classes).
        labels: The right class of every decision (decisions,).
        owner: The sample that every decision belongs to (decisions,); None if every sample has one decision.
        samples: Number of samples, where ``owner`` is given.
    """

    logits: Tensor
    labels: Tensor
    owner: Tensor | None = None
    samples: int = 0

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over the decisions of each sample; 0 for a sample without any."""
        if self.owner is None:
            return values
        total = values.new_zeros(self.samples, *values.shape[1:]).index_add(0, self.owner, values)
        count = torch.bincount(self.owner, minlength=self.samples).clamp(min=1)
        return total / count.view(-1, *([1] * (values.dim() - 1)))


@dataclass(frozen=True)
class Task(ABC):
    """One kind of problem. A subclass is a frozen dataclass; its fields are options that can be sent over a network.

    A task of your own defines at least :meth:`prepared` and :meth:`decisions`, and :meth:`loss` where that is not the
    cross-entropy of the decisions. It is named by its class, or as ``package.module:Class``.

    Attributes:
        name: Name of a built-in task; empty for a user's.
        criterion: Loss of your own in place of the task's: a function (outputs, targets) that returns one value per
            sample, a class, or ``package.module:name``.
    """

    name: ClassVar[str] = ""

    criterion: Criterion = dataclasses.field(default=None, kw_only=True)

    def forward(self, module: nn.Module, inputs: Tree) -> Tensor:
        """Return the outputs of a batch."""
        return call(module, inputs)

    @abstractmethod
    def prepared(self, targets: Tensor) -> Tensor:
        """Return targets in the type and shape that the other functions expect.

        Raises:
            ValueError: If they are not targets of this task; the message says what they must be.
        """

    @abstractmethod
    def decisions(self, outputs: Tensor, targets: Tensor) -> Decisions:
        """Return the choices between classes that the outputs stand for; forgetting losses follow from them."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the task's loss of every sample; by default the cross-entropy."""
        found = self.decisions(outputs, targets)
        return found.mean(F.cross_entropy(found.logits, found.labels, reduction="none"))

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return what the outputs say, in the form of ``targets``."""
        raise UserError(f"the task {self.label} does not say what a model's answer is, which this loss needs")

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs that do not match the targets of the same batch.

        Raises:
            ValueError: With what does not match.
        """
        self.objective(outputs, targets)

    def settled(self, inputs: Tree, targets: Tensor) -> Self:
        """Return the task with options that are left open filled in from a client's training data."""
        return self

    @property
    def open(self) -> bool:
        """Return whether an option is left open that a trained model's errors on held-out data decide."""
        return False

    def calibrate(self, measured: Sequence[Mapping[str, float]]) -> Self:
        """Return the task with open options decided by what every client measured on its held-out data."""
        return self

    def evidence(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return what :meth:`measures` needs of a batch; concatenated over batches."""
        return {}

    def measures(self, evidence: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the summary numbers that this task is usually judged by, besides accuracy and loss."""
        return {}

    # What follows from these -----------------------------------------------------------------------------------

    def objective(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return what retained clients minimise, per sample: the user's criterion, or else :meth:`loss`."""
        return self.loss(outputs, targets) if self.criterion is None else self.judged(outputs, targets)

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the user's criterion of every sample; outputs as many as targets are given in their shape."""
        alike = outputs.numel() == targets.numel()
        typed = targets.to(outputs.dtype) if targets.is_floating_point() else targets
        return criteria.per_sample(self.criterion, outputs.reshape(targets.shape) if alike else outputs, typed)

    def losses(self, loss: Loss, outputs: Tensor, targets: Tensor, reference: Tensor | None = None) -> Tensor:
        """Return a named loss of every sample; ``reference`` is the outputs of a reference model."""
        if loss.name == "ce":
            return self.objective(outputs, targets)
        if loss.name == "ascent":
            return -self.objective(outputs, targets)
        if loss.name == "imitate":
            return self.objective(outputs, self.answers(loss.needed(reference), targets))
        found = self.decisions(outputs, targets)
        other = None if reference is None else self.decisions(reference, targets).logits
        return found.mean(loss(found.logits, found.labels, other))

    def tally(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Return the number of right answers of a batch, and the sum of its losses.

        A sample with several decisions counts as the share of them that is right.
        """
        found = self.decisions(outputs, targets)
        right = found.mean((found.logits.argmax(1) == found.labels).double())
        return float(right.sum()), float(self.objective(outputs, targets).double().sum())

    def signals(self, outputs: Tensor, targets: Tensor) -> signals.Signals:
        """Return what an attack may see of every sample: no label, no input, the first ten sorted outputs."""
        found = self.decisions(outputs, targets)
        logits = found.logits.detach().cpu().numpy().astype(np.float64)
        seen = signals.of(signals.Outputs(logits, found.labels.cpu().numpy().astype(np.int64)))
        if found.owner is None:
            return seen
        cpu = Decisions(torch.empty(0), torch.empty(0), found.owner.cpu(), found.samples)
        return signals.Signals(**{k: cpu.mean(torch.from_numpy(v)).numpy() for k, v in vars(seen).items()})

    def apart(self, ours: Tensor, theirs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compare the outputs of two models on the same batch, sample by sample.

        Returns:
            The Jensen-Shannon divergence in bits, and the share of decisions that differ; both (samples,).
        """
        a, b = self.decisions(ours, targets), self.decisions(theirs, targets)
        differs = (a.logits.argmax(1) != b.logits.argmax(1)).double()
        return a.mean(divergences(a.logits.double(), b.logits.double())), a.mean(differs)

    @property
    def label(self) -> str:
        """Return the name of the task: a built-in one, or package.module:Class."""
        own = str(vars(type(self)).get("name", ""))  # a subclass of a built-in task is another task
        return own or f"{type(self).__module__}:{type(self).__qualname__}"

    def spec(self) -> dict[str, Any]:
        """Return the task as plain values: its name and the options that differ from their defaults."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        own = {k: v for k, v in fields.items() if k != CRITERION and v != defaults[k]}
        return {"name": self.label, **own, **({CRITERION: criteria.label(self.criterion)} if self.criterion else {})}

    def agreed(self, sent: Mapping[str, Any], whose: str, ours: str) -> Self:
        """Return this task with the options that a file or another process states.

        No code is imported for them: the class and the criterion have to be those of this task.

        Args:
            sent: A task as plain values.
            whose: Whose they are, for messages.
            ours: Whose this task is, for messages.
        """
        own = self.spec()
        for key, what in (("name", "task"), (CRITERION, CRITERION)):
            if sent.get(key) != own.get(key):
                told = f"{whose} {what} is {sent.get(key)}, and {ours} is {own.get(key)}"
                raise UserError(f"{told}; both sides must name the same, with task=")
        try:
            return dataclasses.replace(self, **{k: v for k, v in sent.items() if k not in ("name", CRITERION)})
        except (TypeError, ValueError) as error:
            raise UserError(f"{whose} task {self.label}: {error}") from error


def whole(targets: Tensor) -> Tensor:
    """Return targets as int64; ValueError where they are not whole numbers."""
    if targets.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        if not bool((targets == targets.round()).all()):
            raise ValueError("labels must be whole numbers")
    elif targets.dtype.is_complex:
        raise ValueError(f"labels must be whole numbers, not {targets.dtype}")
    return targets.to(torch.int64)


def flat(targets: Tensor) -> Tensor:
    """Return (samples,) for (samples, 1)."""
    return targets.squeeze(1) if targets.dim() == 2 and targets.shape[1] == 1 else targets


def joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the evidence of all batches as one."""
    return {name: torch.cat([part[name] for part in parts]) for name in (parts[0] if parts else {})}


def divergences(a: Tensor, b: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of two models' outputs (samples, classes) on every sample, in bits."""
    p, q = a.softmax(1), b.softmax(1)
    middle = (p + q) / 2
    first, second = (torch.special.xlogy(x, x / middle.clamp_min(1e-300)).sum(1) for x in (p, q))
    bits: Tensor = (first + second) / (2 * math.log(2.0))
    return bits
