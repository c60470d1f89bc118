"""Duration of a run, estimated before it starts, and the question whether it should start if that is long."""

import dataclasses
import time
from collections.abc import Callable

from torch import Tensor

from fupareto.errors import UserError
from fupareto.federation import SimulatedFederation
from fupareto.federation.collected import Local
from fupareto.methods import Method
from fupareto.tasks.losses import Loss

Agree = Callable[[str], bool]  # asked whether a run should start all the same, with a sentence on its duration
LONG = 86_400.0  # seconds above which the user is asked
SHORT = 10_000  # local epochs of all rounds up to which nothing is estimated
UNITS = (("years", 365.25 * 86_400), ("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0))


def always(sentence: str) -> bool:
    """Agree to any duration."""
    return True


def check(method: Method, engine: SimulatedFederation, w: Tensor, agree: Agree) -> None:
    """Ask before a run that takes longer than a day, and refuse it without agreement.

    The estimate is a lower bound for most methods: every round passes once over the data of all clients for each local
    epoch, at the speed that is measured for one epoch of one client.
    """
    epochs = method.expected * int(getattr(method, "epochs", 1))
    if epochs <= SHORT:
        return
    seconds = epochs * _pass(engine, w, int(getattr(method, "batch_size", 200)))
    if seconds <= LONG:
        return
    each = "" if epochs == method.expected else f" of {epochs // method.expected:,} local epochs"
    sentence = f"{method.name} with {method.expected:,} rounds{each} takes at least {in_words(seconds)} on this machine"
    if not agree(sentence):
        raise UserError(f"{sentence}; set fewer rounds or epochs, or start it all the same with --yes")


def _pass(engine: SimulatedFederation, w: Tensor, batch_size: int) -> float:
    """Return the seconds of one local epoch of all clients, measured at the client with the least data."""
    sizes = {i: len(splits["train"]) for i, splits in engine.clients.items()}
    least = min(sizes, key=lambda i: sizes[i])
    local = Local(1e-6, 1, batch_size, 0)
    before, spent = time.perf_counter(), dataclasses.astuple(engine.traffic)
    engine.train_mean(w, [least], Loss("ce"), local)
    engine.traffic.up, engine.traffic.down, engine.traffic.passes = spent  # the run has not begun
    workers = min(engine.workers, len(sizes))
    return (time.perf_counter() - before) * sum(sizes.values()) / sizes[least] / workers


def in_words(seconds: float) -> str:
    """Return a duration in its largest unit.

    >>> in_words(200_000)
    '2.3 days'
    """
    unit, size = next((u for u in UNITS if seconds >= u[1]), UNITS[-1])
    return f"{seconds / size:,.1f} {unit}" if seconds < 100 * size else f"{seconds / size:,.0f} {unit}"
