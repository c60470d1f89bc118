"""Further training of a run's models, whose curves tell what they still know."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor

from fupareto.audit import forgetting
from fupareto.audit.training import Progress, Round, Training, Watch, no_progress
from fupareto.federation.contract import Federation
from fupareto.randomness import derive
from fupareto.versions import versions

Curve = dict[str, Any]  # the entry of one model under ``dormancy`` or ``relearning`` of audit.json


class Curves(Protocol):
    """Store of curves, so that a model that several audits share is trained on once."""

    def __call__(self, key: Mapping[str, Any], measure: Callable[[], Curve]) -> Curve:
        """Return the curve that is stored under ``key``; otherwise measure it.

        Args:
            key: Everything that the curve depends on.
            measure: Function that trains the model on and returns its curve.
        """


def not_stored(key: Mapping[str, Any], measure: Callable[[], Curve]) -> Curve:
    """Measure every curve."""
    return measure()


@dataclass(frozen=True)
class Further:
    """How models are trained on, and what is measured after every round.

    Attributes:
        federation: The clients.
        sides: The forget clients and the retained clients.
        measure: What says that something is known: asr, or forget_acc where there is no mark.
        training: The settings by which clients train.
        seed: Seed of the training's random streams, the same for every model.
        progress: How rounds are shown while they run.
        curves: Store of curves.
    """

    federation: Federation
    sides: tuple[Sequence[str], Sequence[str]]
    measure: str
    training: Training
    seed: int = 0
    progress: Progress = no_progress
    curves: Curves = not_stored

    def slowed(self, share: float) -> "Further":
        """Return the same at a constant share of the training's first rate."""
        return replace(self, training=self.training.slowed(share))

    def rounds(self, w: Tensor, clients: Sequence[str], stream: str) -> Iterator[Round]:
        """Yield the outcome of each further round of training by ``clients``; without end."""
        return self.training.onward(self.federation, w, clients, derive(self.seed, stream))

    def after(self, trained: Round) -> tuple[float | None, Any]:
        """Measure the model after a round as :meth:`known` does; nothing is known if no client trained in it."""
        return (None, {}) if trained.record["step"] is None else self.known(trained.w)

    def known(self, w: Tensor) -> tuple[float | None, Any]:
        """Return a model's measure in the mean over the forget clients, and of each of them.

        Each client's entry has the ``value`` and the number of ``samples`` that it was measured on.
        """
        split, value, samples = (
            ("trigger", "asr", "asr_samples") if self.measure == "asr" else ("clean|train", "accuracy", "samples")
        )
        forget, _ = self.sides
        found = forgetting.forgetting(self.federation.evaluate(w, forget, (split,)), forget)
        clients = {
            i: {"value": c[value], "samples": c[samples]} for i, c in found["clients"].items() if c[value] is not None
        }
        mean = found[self.measure]
        return None if mean is None else float(mean), clients

    def curve(self, name: str, title: str, rounds: int, w: Tensor, trace: Callable[[Watch | None], Curve]) -> Curve:
        """Return the stored curve of a model; otherwise train the model on.

        Args:
            name: Kind of further training.
            title: Title of the progress display.
            rounds: Number of further rounds.
            w: The model to start from.
            trace: Function that trains the model on and returns its curve.
        """

        def measured() -> Curve:
            with self.progress(title, rounds) as watch:
                return trace(watch)

        return self.curves(self._key(name, rounds, w), measured)

    def _key(self, name: str, rounds: int, w: Tensor) -> dict[str, Any]:
        """Return everything that a curve depends on, but the data of the clients."""
        forget, retained = self.sides
        return {
            "curve": name,
            "rounds": rounds,
            "model": hashlib.sha256(w.cpu().numpy().tobytes()).hexdigest(),
            "measure": self.measure,
            "training": repr(self.training),
            "forget": list(forget),
            "retained": list(retained),
            "seed": self.seed,
            "device": str(self.federation.device),
            "versions": versions(self.federation.packages),
        }
