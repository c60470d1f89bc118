"""What the tests of deployments share: four clients of the example app, and how a run of theirs is judged."""

import os
from pathlib import Path

import pytest
import torch

import fupareto
from fupareto.run.directory import Run
from presets import guard

OTHER = os.environ.get("FUPARETO_OTHER_FLOWER")  # directory with another version of Flower
with_other = pytest.mark.skipif(not OTHER, reason="FUPARETO_OTHER_FLOWER is not set")
CLIENTS = ("0", "1", "2", "7")
METHOD = guard(rounds=2, recovery_rounds=1, lr=0.3)
OPTIONS = "rounds=2 recovery_rounds=1 lr=0.3"


def config(start: Path, out: Path, *more: str, options: str = OPTIONS, timeout: float = 300.0) -> str:
    words = [
        'forget="7" method="fupareto:guard"',
        f'model="{start}"',
        f'out="{out}"',
        f'options="{options}"',
        f"clients=4 timeout={timeout} measure-every=0",
        *more,
    ]
    return " ".join(words)


def assert_as_expected(run: Run, expected: fupareto.Result) -> None:
    for stage in ("initial", "unlearned", "recovered"):
        mine, theirs = run.load_model(stage), expected.model(stage)
        assert mine is not None
        for name, tensor in theirs.items():
            assert torch.allclose(mine[name], tensor, rtol=0, atol=1e-5), (stage, name)
    keys = ("round", "stage", "phase", "step", "missing")
    mine_, theirs_ = ([{k: r[k] for k in keys} for r in rounds] for rounds in (run.rounds(), expected.rounds))
    assert mine_ == theirs_
    assert run.summary["status"] == "complete"
    assert (run.path / "report.html").is_file()
