"""The summary numbers of a task: means over clients, absent where one is not a finite number."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fupareto
from federation import worlds
from fupareto.audit.measure import measures
from fupareto.federation.collected import Evaluation
from fupareto.methods.finetune import FineTune
from fupareto.tasks.kinds import Classes


def seen(*errors: float) -> Evaluation:
    """Return measurements of retained clients 0, 1, … with these errors, and a share that is always 0.5."""
    common = {"samples": 4, "right": 2, "loss": math.nan}
    return Evaluation({str(k): {"test": {**common, "error": e, "share": 0.5}} for k, e in enumerate(errors)})


def test_the_numbers_are_means_over_clients() -> None:
    assert measures(seen(1.0, 4.0), [], ["0", "1"]) == {"retained": {"error": 2.5, "share": 0.5}}


@pytest.mark.parametrize(
    "errors",
    [(1.0, math.nan), (math.nan, 1.0), (1.0, math.inf), (math.inf, -math.inf), (1.5e308, 1.5e308)],
    ids=str,
)
def test_a_number_that_is_not_finite_is_absent(errors: tuple[float, ...]) -> None:
    """Not the mean over the other clients, which would hide the client on which the model fails most."""
    assert measures(seen(*errors), [], ["0", "1"]) == {"retained": {"share": 0.5}}


@dataclass(frozen=True)
class Undefined(Classes):
    """Classes with a precision that is undefined, as where nothing was predicted."""

    name = "undefined"

    def evidence(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"outputs": outputs}

    def measures(self, evidence: object) -> dict[str, float]:
        return {"precision": math.nan}


def test_a_run_with_an_undefined_number_is_finished(tmp_path: Path) -> None:
    held = {i: (splits["train"], splits["test"]) for i, splits in worlds.clients().items()}
    federation = fupareto.simulate(worlds.plain(), held, workers=1, task=Undefined())
    method = FineTune(rounds=1, batch_size=9)
    result = fupareto.unlearn(federation, worlds.plain(), ["c1"], method, out=tmp_path / "run")
    assert (tmp_path / "run/summary.json").is_file()
    assert all("measures" not in stage for stage in result.summary()["stages"].values())
    assert torch.isfinite(torch.tensor(result.summary()["stages"]["initial"]["r_acc"]))
