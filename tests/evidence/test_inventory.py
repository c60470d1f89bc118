"""Inventory and purge: what carries the forgotten is found and goes, what does not carry them stays."""

import json
from pathlib import Path
from typing import Any

import pytest

import fupareto
from fupareto import FedAvg, FUPareto, Request
from fupareto.errors import UserError
from fupareto.evidence import FAILED, certify, verify
from fupareto.evidence.inventory import CARRIES, CLEAN, Artefact, covered, take
from fupareto.evidence.purge import purge
from fupareto.evidence.purges import FILE
from fupareto.run.directory import Run

from .conftest import federation, model

METHOD = FUPareto(rounds=1, recovery_rounds=1, lr=0.1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A training with a history, a request with a retrained model, a second request after it; another training."""
    clients = federation(*"abcd")
    training = FedAvg(rounds=2, batch_size=8)
    trained = fupareto.train(clients, model(), training, out=tmp_path / "training", record=["fupga", "federaser"])
    first = fupareto.unlearn(clients, trained, ["a"], METHOD, out=tmp_path / "first")
    first.audit(retrain=1, dormancy=0)
    fupareto.unlearn(clients, first, ["b"], METHOD, out=tmp_path / "second")
    fupareto.train(federation(*"xyz"), model(), FedAvg(rounds=1, lr=0.3), out=tmp_path / "stranger")
    certify(tmp_path / "first")
    return tmp_path


def by_name(found: list[Artefact], place: Path) -> dict[str, Artefact]:
    return {str(a.path.relative_to(place)): a for a in found}


def test_what_carries_whom(place: Path) -> None:
    found, remarks = take(place)
    named = by_name(found, place)
    carried = {name: a.requests for name, a in named.items() if a.status == CARRIES}
    final = Run.open(place / "first").summary["final"]
    other = {"unlearned": "recovered", "recovered": "unlearned"}[final]
    assert carried == {
        "training/initial.safetensors": ("client a", "client b"),
        "training/history/federaser": ("client a", "client b"),
        "training/history/fupga": ("client a", "client b"),
        "first/initial.safetensors": ("client a", "client b"),
        "first/retrained/initial.safetensors": ("client a", "client b"),
        "first/retrained/unlearned.safetensors": ("client b",),
        f"first/{final}.safetensors": ("client b",),
        f"first/{other}.safetensors": ("client b",),
        "second/initial.safetensors": ("client b",),
        "first/replay": ("client a", "client b"),
        "first/retrained/replay": ("client b",),  # never saw a
        "second/replay": ("client b",),
    }
    clean = {name for name, a in named.items() if a.status == CLEAN}
    assert clean == {f"second/{stage}.safetensors" for stage in ("unlearned", "recovered")}
    assert not any("stranger" in name for name in named)
    assert all(a.bytes == sum(p.stat().st_size for p in a.files) for a in found)
    assert not remarks
    assert not named["first/retrained/unlearned.safetensors"].removable  # no later model takes its place


def test_a_purge_removes_that_and_leaves_the_evidence(place: Path) -> None:
    found, _ = take(place)
    before = {p for p in place.rglob("*") if p.is_file()}
    doomed = {p for a in found if a.removable for p in a.files}
    assert set(purge(place, found)) == doomed
    after = {p for p in place.rglob("*") if p.is_file()}
    assert before - after >= doomed
    assert {p.name for p in before - after - doomed} <= {"clients.json"}
    left = [a for a in take(place)[0] if a.status == CARRIES]
    assert [str(a.path.relative_to(place)) for a in left] == ["first/retrained/unlearned.safetensors"]
    for name in ("training", "first", "second", "stranger"):
        Run.open(place / name)  # nothing is missed
    with pytest.raises(UserError, match=r"initial\.safetensors was purged at 20"):
        fupareto.unlearn(federation(*"abcd"), place / "training", ["c"], METHOD)
    findings = verify(place / "first/certificate.json")
    assert not [f for f in findings if f.level == FAILED]
    assert any(f.about == FILE and f"{len(doomed)} files" in f.text for f in findings)
    entry = json.loads((place / "first" / FILE).read_text())
    assert {(place / "first" / one["path"]).resolve() for one in entry["removed"]} == {p.resolve() for p in doomed}


def changed(line: bytes) -> bytes:
    return line.replace(b"initial", b"initiaI", 1)


@pytest.mark.parametrize(
    "harm",
    [
        lambda run: (run / FILE).write_bytes(changed((run / FILE).read_bytes())),
        lambda run: (run / FILE).write_bytes(2 * (run / FILE).read_bytes()),
        lambda run: (run / FILE).write_bytes(b"[]\n"),
        lambda run: (run / "initial.safetensors").write_bytes(b"restored from a backup"),
    ],
)
def test_a_record_that_is_not_true_is_noticed(place: Path, harm: Any) -> None:
    purge(place, take(place)[0])
    harm(place / "first")
    assert any(f.about == FILE and f.level == FAILED for f in verify(place / "first/certificate.json"))


def test_a_run_in_use_or_unfinished_is_not_purged(place: Path) -> None:
    before = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
    Run.create(place / "begun", {"kind": "unlearn", "trained": str(place / "training")}, {"clients": ["d"]})
    found, remarks = take(place)
    assert not any(a.removable for a in found)
    assert any("begun is not finished" in remark for remark in remarks)
    assert purge(place, found) == []
    assert {p: p.read_bytes() for p in before} == before


@pytest.mark.parametrize(
    ("asked", "by", "is_covered"),
    [
        (Request(("a",)), [Request(("a", "b"))], True),
        (Request(("a", "b")), [Request(("a",))], False),
        (Request(("a", "b")), [Request(("a",)), Request(("b",))], True),
        (Request(samples={"a": (1, 2)}), [Request(("a",))], True),
        (Request(samples={"a": (1, 2)}), [Request(samples={"a": (1,)})], False),
        (Request(samples={"a": (1, 2)}), [Request(samples={"a": (1, 2, 3)})], True),
        (Request(("a",)), [Request(samples={"a": (1, 2)})], False),
        (Request(classes=(4,)), [Request(classes=(4, 5))], True),
        (Request(classes=(4,)), [Request(("a",))], False),
    ],
)
def test_what_one_request_covers(asked: Request, by: list[Request], is_covered: bool) -> None:
    assert covered(asked.to_json(), [one.to_json() for one in by]) is is_covered
