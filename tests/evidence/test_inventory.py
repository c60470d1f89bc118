"""Inventory and purge: what carries the forgotten is found and goes, what does not carry them stays."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fupareto
from fupareto import FedAvg, FUPareto, Request, files
from fupareto.errors import UserError
from fupareto.evidence import FAILED, certify, keys, verify
from fupareto.evidence.asking import covered
from fupareto.evidence.inventory import CARRIES, CLEAN, DAMAGED, UNKNOWN, Artefact, take
from fupareto.evidence.purge import purge
from fupareto.evidence.purges import FILE
from fupareto.run.directory import Run
from manifests import relist

from .conftest import federation, model

METHOD = FUPareto(rounds=1, recovery_rounds=1, lr=0.1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with a history, a request with a retrained model, a second request after it; another training."""
    tmp_path = tmp_path_factory.mktemp("inventory")
    clients = federation(*"abcd")
    training = FedAvg(rounds=2, batch_size=8)
    trained = fupareto.train(clients, model(), training, out=tmp_path / "training", record=["fupga", "federaser"])
    first = fupareto.unlearn(clients, trained, ["a"], METHOD, out=tmp_path / "first")
    first.audit(retrain=1, dormancy=0)
    fupareto.unlearn(clients, first, ["b"], METHOD, out=tmp_path / "second")
    fupareto.train(federation(*"xyz"), model(), FedAvg(rounds=1, lr=0.3), out=tmp_path / "stranger")
    certify(tmp_path / "first")
    return tmp_path


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of these runs that a test may change."""
    return shutil.copytree(made, tmp_path / "runs")


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


def content(place: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def kept(run: Path) -> Path:
    return run / f"{json.loads((run / 'summary.json').read_text())['final']}.safetensors"


def lose_the_answer(place: Path) -> None:
    """Remove the last answer, also from its manifest, as a careless hand could."""
    kept(place / "second").unlink()
    relist(place / "second")


HARM: dict[str, tuple[str, Callable[[Path], object]]] = {
    "request": ("second", lambda place: (place / "second/request.json").unlink()),
    "config": ("second", lambda place: (place / "second/config.toml").unlink()),
    "manifest": ("second", lambda place: (place / "second/manifest.json").unlink()),
    "summary": ("second", lambda place: cut(place / "second/summary.json")),
    "final missing": ("second", lambda place: kept(place / "second").unlink()),
    "final unlisted": ("second", lose_the_answer),
    "final cut": ("second", lambda place: cut(kept(place / "second"))),
    "first answer": ("first", lambda place: cut(kept(place / "first"))),
    "retrained": ("first/retrained", lambda place: (place / "first/retrained/request.json").unlink()),
    "training": ("training", lambda place: cut(place / "training/initial.safetensors")),
}


@pytest.mark.parametrize("harm", HARM)
def test_nothing_of_a_family_with_a_damaged_run_is_removed(place: Path, harm: str) -> None:
    """The damaged run may be the answer; it is listed with the reason, and so is all that it may carry."""
    where, damage = HARM[harm]
    damage(place)
    before = content(place)
    found, remarks = take(place)
    [damaged] = [a for a in found if a.status == DAMAGED]
    assert (damaged.path, damaged.removable) == (place / where, False)
    assert damaged.why.startswith(f"not readable: {place / where}")
    assert not any(a.removable for a in found)
    assert any(f"{place / where} is not readable" in remark for remark in remarks)
    listed = {p for a in found for p in a.files}
    models = {p for p in before if p.suffix == ".safetensors" and not p.is_relative_to(place / "stranger")}
    assert models <= listed
    assert {a.status for a in found if a.path.parent == place / where and a.path.name != "retrained"} == {UNKNOWN}
    with pytest.raises(UserError, match=r"nothing was removed: .* is not readable"):
        purge(place, found)
    assert content(place) == before


def test_what_is_left_of_a_run_is_listed(place: Path, tmp_path: Path) -> None:
    """Without its documents, a copy of the old model and states of rounds are still carriers."""
    for name, keep in (("a", "initial.safetensors"), ("b", "replay"), ("c", "history")):
        source = place / ("training" if keep == "history" else "first") / keep
        (tmp_path / "rest" / name).mkdir(parents=True)
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / "rest" / name / keep)
    found, _ = take(tmp_path / "rest")
    assert {str(a.path.relative_to(tmp_path / "rest")): a.status for a in found} == {
        "a": DAMAGED,
        "a/initial.safetensors": UNKNOWN,
        "b": DAMAGED,
        "b/replay": UNKNOWN,
        "c": DAMAGED,
        "c/history": UNKNOWN,
    }


def test_a_request_that_cannot_be_read_leaves_nothing_clean(place: Path) -> None:
    """Models of the other runs of its family may carry what it asks for."""
    for path in (place / "second", place / "first/retrained"):
        shutil.rmtree(path)
    (place / "first/request.json").unlink()
    named = by_name(take(place)[0], place)
    assert named["training/initial.safetensors"].status == UNKNOWN
    assert named["training/initial.safetensors"].why.startswith(f"may carry what {place / 'first'} was asked to forget")
    assert CLEAN not in {a.status for a in named.values()}


def test_other_directories_are_no_damaged_runs(place: Path) -> None:
    """A file of the same name is not a run; models outside of runs are mentioned."""
    (place / "tool").mkdir()
    (place / "tool/config.toml").write_text("[server]\nport = 80\n")
    (place / "broken").mkdir()
    (place / "broken/config.toml").write_text("[server\n")
    (place / "models").mkdir()
    shutil.copy(place / "training/initial.safetensors", place / "models/deployed.safetensors")
    found, remarks = take(place)
    assert not any(a.status in (DAMAGED, UNKNOWN) for a in found)
    assert sorted(remarks) == [
        f"{place / 'broken/config.toml'} cannot be read; whether it is that of a run is not known",
        f"{place / 'models'} has .safetensors files that belong to no run: deployed.safetensors; not examined",
    ]
    assert purge(place, found)


def test_an_interrupted_purge_is_repeated(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it was killed, the same files are gone in the end."""
    found, _ = take(place)
    doomed = {p for a in found if a.removable for p in a.files}
    remove = files.remove
    for _ in range(len(doomed) + 1):
        count = iter(range(2))

        def killed(path: Path, count: Any = count) -> None:
            if next(count, None) is None:
                raise KeyboardInterrupt
            remove(path)

        with monkeypatch.context() as patch:
            patch.setattr(files, "remove", killed)
            try:
                purge(place, take(place)[0])
                break
            except KeyboardInterrupt:
                continue
    assert not any(p.exists() for p in doomed)
    assert not any(a.removable for a in take(place)[0])
    assert kept(place / "second").is_file()


def test_a_directory_that_changed_since_it_was_listed_is_not_purged(place: Path) -> None:
    found, _ = take(place)
    Run.create(place / "begun", {"kind": "unlearn", "trained": str(place / "training")}, {"clients": ["d"]})
    before = content(place)
    with pytest.raises(UserError, match="has changed since it was listed"):
        purge(place, found)
    assert content(place) == before


def test_a_later_model_that_carries_more_takes_no_place(place: Path) -> None:
    """A run that starts from an answer, but has the forgotten client among its own again, is no reason to remove it."""
    shutil.rmtree(place / "second")
    fupareto.unlearn(federation(*"abcd"), kept(place / "first"), ["b"], METHOD, out=place / "again")
    named = by_name(take(place)[0], place)
    answer = named[f"first/{kept(place / 'first').name}"]
    assert (answer.requests, answer.removable) == (("client b",), False)
    assert named["again/recovered.safetensors"].requests == ("client a",)


def test_samples_that_were_forgotten_earlier_stay_out(tmp_path: Path) -> None:
    clients = federation(*"abc")
    trained = fupareto.train(clients, model(), FedAvg(rounds=1, batch_size=8), out=tmp_path / "training")
    first = fupareto.unlearn(clients, trained, Request(samples={"a": (0, 1)}), METHOD, out=tmp_path / "first")
    fupareto.unlearn(clients, first, Request(classes=(2,)), METHOD, out=tmp_path / "second")
    named = by_name(take(tmp_path)[0], tmp_path)
    assert named["second/initial.safetensors"].requests == ("class 2",)
    assert named["second/recovered.safetensors"].status == CLEAN
    assert named["first/recovered.safetensors"].removable


def test_requests_with_the_same_words_are_told_apart(tmp_path: Path) -> None:
    """Two requests for as many samples of one client: each model carries the other."""
    clients = federation(*"abc")
    trained = fupareto.train(clients, model(), FedAvg(rounds=1, batch_size=8), out=tmp_path / "training")
    for name, rows in (("first", (0, 1)), ("other", (5, 6))):
        fupareto.unlearn(clients, trained, Request(samples={"a": rows}), METHOD, out=tmp_path / name)
    found = by_name(take(tmp_path)[0], tmp_path)
    assert {name: found[f"{name}/recovered.safetensors"].status for name in ("first", "other")} == {
        "first": CARRIES,
        "other": CARRIES,
    }


def test_files_of_a_signed_certificate_are_known(place: Path) -> None:
    keys.make("operator", place / "keys")
    certify(place / "second", signer=keys.signer(place / "keys/operator.key"))
    for name in ("certificate.tsr", "earlier.json"):
        (place / "second" / name).write_bytes(b"{}")
    found, remarks = take(place)
    assert not remarks
    named = by_name(found, place)["second"]
    assert {"certificate.intoto.jsonl", "certificate.tsr", "earlier.json"} <= {p.name for p in named.files}


def test_states_of_a_retraining_never_saw_what_was_forgotten(place: Path) -> None:
    shutil.rmtree(place / "second")
    named = by_name(take(place)[0], place)
    assert named["first/retrained/replay"].status == CLEAN
    assert "never saw" in named["first/retrained/replay"].why
    assert "before" not in named["first/retrained/replay"].why
    assert "from before all of it was forgotten" in named["first/replay"].why


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
