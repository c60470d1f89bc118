"""FedEraser (Liu et al., IWQoS 2021): replay the training without the forget clients, with calibrated updates.

During training the server stores, every few rounds, the global model and every client's local model. Unlearning starts
from the recorded initial model. In each stored round the retained clients train briefly from the current model; this
gives the *direction* of the calibrated update, and the recorded update of the same clients gives its *length*, layer by
layer.

Faithfulness: from the authors' code, and from the paper's text where the two differ (the recorded update starts from
the global model before the round; the code takes the one after it). Stored rounds are evenly spaced over the training,
one for every unlearning round.

Storage: (clients + 1) models for every stored round. Communication: one model down and one up per retained client and
round; the forget clients are not needed.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fupareto.federation.collected import Local
from fupareto.federation.contract import Federation
from fupareto.federation.history import History
from fupareto.federation.request import Request
from fupareto.methods.base import positive
from fupareto.methods.staged import CE, Staged, StagedState, moved


@dataclass(frozen=True)
class FedEraser(Staged):
    """Replay recorded updates, calibrated by new ones of the retained clients."""

    name: ClassVar[str] = "federaser"
    history: ClassVar[str] = "federaser"
    whole_clients: ClassVar[bool] = True
    from_training: ClassVar[tuple[str, ...]] = ("lr", "decay", "epochs", "batch_size")

    rho: float = 0.5  # share of the local epochs of training, rounded up

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(rho=self.rho)

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> StagedState:
        """Start from ``w0``, which the first round replaces by the recorded initial model; a history is required."""
        state: StagedState = super().init(federation, w0, request, seed)
        self.recorded(federation)
        return dataclasses.replace(state, w0=torch.empty(0))

    def rows(self, forget: int, retained: int) -> int:
        """Count the new models of the retained clients, and three others; recorded models are read one at a time."""
        return retained + 3

    def unlearn(self, federation: Federation, state: StagedState) -> StagedState:
        """Replay one stored round."""
        history, layout = self.recorded(federation), federation.layout
        kept = history.plan.replayed
        count = min(self.rounds, len(kept))  # fewer rounds than stored: spread them over the whole training
        at = kept[state.round * len(kept) // count]
        lr, ended = self.lr * self.decay**at, state.round + 1 >= count
        record: dict[str, Any] = {"lr": lr, "replayed": at, "missing": {}, "ended": ended}
        old = _recorded_update(history, at, state.retained)
        old = None if old is None else old.to(state.w.device)
        if state.round == 0:  # the first round is replayed without calibration
            start = history.before(at).to(state.w.device)
            return moved(state, "replay", start if old is None else start + old, record)
        if old is None:
            return moved(state, "replay", None, record)
        local = Local(lr, math.ceil(self.rho * self.epochs), self.batch_size, state.stream("local"))
        answer = federation.train(state.w, state.retained, CE, local)
        record["missing"] = answer.missing
        if not answer.ids:
            return moved(state, "replay", None, record)
        update = calibrated(layout.named(old), layout.named(answer.models.mean(0) - state.w))
        return moved(state, "replay", state.w + layout.flat(update), record)


def calibrated(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return, layer by layer, ||old|| · new / ||new||; zero where the new update is zero."""
    return {name: old[name].norm() * t / t.norm() if float(t.norm()) > 0.0 else t for name, t in new.items()}


def _recorded_update(history: History, round_: int, retained: tuple[str, ...]) -> Tensor | None:
    """Return the mean update of the retained clients in a stored round, with one model in memory at a time."""
    before = history.before(round_)
    total, count = torch.zeros_like(before), 0
    for i in retained:
        found = history.local(round_, i)
        if found is not None:
            total += found[0]
            count += 1
    return total / count - before if count else None
