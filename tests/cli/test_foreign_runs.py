"""Runs that were made from Python or over Flower, at the command line."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

import fupareto
from fupareto import FedAvg
from manifests import relist
from presets import guard
from test_result import clients, model

from .conftest import Call

QUIET = ("--json",)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of the Python interface, ``tmp_path/python``, after a training beside it."""
    federation = fupareto.simulate(model(), clients())
    trained = fupareto.train(federation, model(), FedAvg(rounds=2, batch_size=8), out=tmp_path / "training")
    fupareto.unlearn(federation, trained, ["b"], guard(rounds=2, recovery_rounds=1), out=tmp_path / "python")
    return tmp_path / "python"


def test_what_needs_clients_says_where_they_are(mistake: Callable[..., str], run: Path) -> None:
    says = ("python was made from Python", "its clients are defined in a program")
    mistake(
        "unlearn", "python", "--clients", "c", "--out", "next", says=(*says, 'fupareto.unlearn(federation, "python"')
    )
    mistake(
        "unlearn", "training", "--out", "next", says=("made from Python", 'fupareto.unlearn(federation, "training"')
    )
    mistake("audit", "python", says=(*says, 'fupareto.audit(federation, "python")'))
    config = tomllib.loads((run / "config.toml").read_text())
    config["versions"]["flwr"] = "1.41"
    (run / "config.toml").write_text(tomli_w.dumps(config))
    relist(run)
    mistake("audit", "python", says=("python was made over Flower",))
    (run / "summary.json").unlink()
    relist(run)
    mistake("audit", "python", says=("not finished", "resume=True"))


def test_what_needs_files_alone_works(call: Call, run: Path, tmp_path: Path) -> None:
    assert call("report", run).code == 0
    assert (run / "report.html").is_file()
    ended = call("compare", run, tmp_path / "training", *QUIET)
    assert ended.code == 0
    assert set(json.loads(ended.out)) == {str(run), str(tmp_path / "training")}
    assert call("certify", run).code == 0
    ended = call("verify", run / "certificate.json")
    assert ended.code == 0, ended.out
