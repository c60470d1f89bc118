"""The loop: what it writes, and that it can be cut off at every single write without changing the result."""

import fcntl
import itertools
import json
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fupareto
from fupareto import config, experiment
from fupareto.audit.attendance import never_answered
from fupareto.errors import UserError
from fupareto.federation import SimulatedFederation
from fupareto.federation.questions import diverged
from fupareto.methods.mode import MoDe
from fupareto.run.directory import Run

TINY = config.validate(
    {
        "name": "tiny",
        "data": {"samples": 200},
        "partition": {"kind": "iid", "clients": 4},
        "train": {"rounds": 2},
        "request": {"clients": ["1"]},
        "unlearn": {
            "method": "fupareto:guard",
            "options": {"rounds": 2, "recovery_rounds": 1, "lr": 50.0, "s": 0},  # the first improvement fails
        },
    },
    "tiny",
)
Work = Callable[[Path, bool], Run]


EVERY = int(os.environ.get("FUPARETO_CRASH_EVERY", "3"))  # writes between two cuts that are tried


class Cut(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never interrupted: ``train`` and ``unlearn``."""
    place = tmp_path_factory.mktemp("finished")
    experiment.train(TINY, place / "train")
    experiment.unlearn(place / "train", place / "unlearn")
    return place


@pytest.fixture(params=["train", "unlearn"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def work(kind: str, finished: Path) -> Work:
    if kind == "train":
        return lambda out, resume: experiment.train(TINY, out, resume=resume)
    return lambda out, resume: experiment.unlearn(finished / "train", out, resume=resume)


def timeless(run: Path) -> dict[str, Any]:
    held: dict[str, Any] = {p.name: p.read_bytes() for p in run.glob("*.safetensors")}
    held["rounds"] = [json.loads(line) | {"seconds": 0} for line in (run / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((run / "summary.json").read_text())
    held["summary"] = summary | {"created": "", "cost": summary["cost"] | {"seconds": 0}}
    held["names"] = sorted(str(p.relative_to(run)) for p in run.rglob("*"))
    lines = (run / "config.toml").read_text().splitlines()
    held["config"] = [line for line in lines if not line.startswith("trained = ")]  # a path, as seen from the run
    return held


def cut_everywhere(
    work: Work,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arm: Callable[[Any, int], None],
    every: int = EVERY,
) -> int:
    """Cut the work off at some of its writes, resume, and compare; return how many writes there are, about."""
    expected = timeless(finished)
    for n in itertools.count(0, every):
        out = tmp_path / str(n)
        with monkeypatch.context() as patch:
            arm(patch, n)
            try:
                work(out, False)
            except Cut:
                pass
            else:
                assert timeless(out) == expected
                return n
        work(out, True)
        found = timeless(out)
        assert found.keys() == expected.keys()
        for key in found:
            assert found[key] == expected[key], f"cut at write {n}: {key}"
    return -1


def counted(n: int, at: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``at``, except that its n-th call (from 0) does something else and ends the process."""
    calls = itertools.count()

    def function(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == n:
            instead(*args, **kwargs)
            raise Cut
        return at(*args, **kwargs)

    return function


def test_cut_while_a_file_is_half_written(
    work: Work, kind: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arm(patch: Any, n: int) -> None:
        def half(descriptor: int) -> None:
            about = os.fstat(descriptor)
            if stat.S_ISREG(about.st_mode):
                appended = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND  # earlier lines are on disk
                os.ftruncate(descriptor, about.st_size - 10 if appended else about.st_size // 2)
            patch.setattr(Path, "unlink", lambda *_, **__: None)  # a process that is killed does not tidy up

        patch.setattr(os, "fsync", counted(n, os.fsync, half))

    # configuration, (request), checkpoints before the first and after every round, models, summary; each with the
    # manifest before and after it, and its directory
    writes = cut_everywhere(work, finished / kind, tmp_path, monkeypatch, arm)
    assert writes > 2 * {"train": 1 + 3 + 1 + 1, "unlearn": 2 + 4 + 3 + 2}[kind]


def test_cut_right_after_a_file_is_written(
    work: Work, kind: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arm(patch: Any, n: int) -> None:
        patch.setattr(Path, "replace", counted(n, Path.replace, Path.replace))

    assert cut_everywhere(work, finished / kind, tmp_path, monkeypatch, arm) >= {"train": 12, "unlearn": 21}[kind]


def test_cut_in_the_middle_of_a_line(
    work: Work, kind: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(run: Run, record: dict[str, Any]) -> None:
        with (run.path / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(record)[:40])

    def arm(patch: Any, n: int) -> None:
        patch.setattr(Run, "append", counted(n, Run.append, half))

    assert (
        cut_everywhere(work, finished / kind, tmp_path, monkeypatch, arm, every=1) == {"train": 2, "unlearn": 3}[kind]
    )


def test_interrupted_in_a_round_and_in_the_audit(
    work: Work, kind: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while clients are answering: in the first round, between two, and while the result is measured."""
    from fupareto.federation import SimulatedFederation

    for n in {"train": (0, 1, 2, 3), "unlearn": (0, 1, 3, 5)}[kind]:
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedFederation, "ask", counted(n, SimulatedFederation.ask, lambda *_: None))
            with pytest.raises(Cut):
                work(tmp_path / str(n), False)
        work(tmp_path / str(n), True)
        assert timeless(tmp_path / str(n)) == timeless(finished / kind)


def test_the_watch_sees_every_round(finished: Path, tmp_path: Path) -> None:
    from contextlib import contextmanager

    seen: list[dict[str, Any]] = []

    @contextmanager
    def progress(title: str, rounds: int) -> Any:
        assert (title, rounds) == ("unlearning", 3)
        yield seen.append

    run = experiment.unlearn(finished / "train", tmp_path / "run", host=experiment.Host(progress=progress))
    assert seen == run.rounds()


def test_rounds_end_stages_and_count_bytes(finished: Path) -> None:
    run = Run.open(finished / "unlearn")
    assert [(r["round"], r["stage"]) for r in run.rounds()] == [(1, "unlearned"), (2, "unlearned"), (3, "recovered")]
    parameters = sum(t.numel() for t in (run.load_model("initial") or {}).values())
    for r in Run.open(finished / "train").rounds():
        assert r["bytes_up"] == r["bytes_down"] == 4 * 4 * parameters  # four clients, four bytes
        assert r["seconds"] > 0
    assert all(r["r_acc"] is not None for r in run.rounds())


def test_training_again_gives_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    experiment.train(TINY, tmp_path / "run")
    assert timeless(tmp_path / "run") == timeless(finished / "train")


def test_audit_of_a_run_that_is_not_finished_or_not_ours(finished: Path, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "python", {"kind": "python", "seed": 0}, {"clients": ["1"]})
    with pytest.raises(UserError, match=r"made from Python.* not finished.* resume=True"):
        experiment.audit(run)
    run.save_summary(Run.open(finished / "unlearn").summary)
    with pytest.raises(UserError, match=r"made from Python.*fupareto\.audit\(federation, \".*python\"\)"):
        experiment.audit(run)
    begun = Run.create(tmp_path / "begun", Run.open(finished / "unlearn").config, {"clients": ["1"]})
    with pytest.raises(UserError, match="is not finished"):
        experiment.audit(begun)


def test_method_without_a_name_for_its_stage_is_measured(finished: Path, tmp_path: Path) -> None:
    """FedAvg goes on with the retained clients: its model is the unlearned one, and there is no recovery."""
    run = experiment.unlearn(finished / "train", tmp_path / "run", method="fedavg", options={"rounds": 2})
    assert list(run.summary["stages"]) == ["initial", "unlearned"]
    assert run.summary["final"] == "unlearned"
    assert run.summary["phases"] == {"improve": 0, "expand": 0, "failed": 0}


def test_an_improvement_fails_and_is_followed_by_an_expansion(finished: Path) -> None:
    """Else no cut above would come between two rounds that share their gradients."""
    first, second = Run.open(finished / "unlearn").rounds()[:2]
    assert (first["phase"], first["step"], second["phase"]) == ("improve", None, "expand")
    assert second["bytes_up"] < first["bytes_up"]


# Nobody answers ----------------------------------------------------------------------------------------------------


def normed(sizes: Sequence[int]) -> SimulatedFederation:
    """Clients of so many samples each, whose model cannot train on a batch of one."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    generator = torch.Generator().manual_seed(0)
    data = {}
    for k, n in enumerate(sizes):
        both = [(torch.randn(m, 4, generator=generator), torch.arange(m) % 3) for m in (n, 6)]
        data[f"c{k}"] = (both[0], both[1])
    return fupareto.simulate(model, data, workers=1)


def model_of(federation: SimulatedFederation) -> torch.Tensor:
    return federation.fresh(0)


def test_a_last_batch_of_one_is_merged_into_the_one_before_it() -> None:
    federation = normed([9, 5, 9])  # batches of 4: the last ones would have one sample each
    result = fupareto.train(federation, model_of(federation), fupareto.FedAvg(rounds=2, batch_size=4))
    assert not any(r["missing"] for r in result.rounds)


@pytest.mark.parametrize("rounds", [2, 8])
def test_a_training_in_which_nobody_answers_fails_with_the_reason(
    rounds: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = normed([1, 1, 1])
    method = fupareto.FedAvg(rounds=rounds, batch_size=4)
    for resume in (False, True):  # resuming does not make it a success
        with pytest.raises(UserError, match=r"no client .* usable answer .*'c0': ValueError: Expected more"):
            fupareto.train(federation, model_of(federation), method, out=tmp_path / "run", resume=resume)
        assert not (tmp_path / "run/summary.json").exists()
    assert "round 1: no client gave a usable answer" in caplog.text
    assert len((tmp_path / "run/rounds.jsonl").read_text().splitlines()) <= 6


def test_a_client_that_never_answered_makes_a_run_unverified() -> None:
    federation = normed([9, 1, 9])
    result = fupareto.train(federation, model_of(federation), fupareto.FedAvg(rounds=2, batch_size=4))
    assert set(never_answered(result.rounds)) == {"c1"}
    summary = result.summary()
    assert summary["status"] == "unverified"
    assert "Expected more than 1" in summary["missing"]["c1"]


def test_a_training_that_changes_nothing_fails() -> None:
    data = (torch.randn(9, 4), torch.arange(9) % 3)
    federation = fupareto.simulate(nn.Linear(4, 3), {"a": (data, data), "b": (data, data)})
    with pytest.raises(UserError, match="2 rounds of training did not change the model"):
        fupareto.train(federation, model_of(federation), fupareto.FedAvg(rounds=2, lr=1e-20))


def test_what_a_method_held_is_the_most_that_its_state_was() -> None:
    """Renewal holds w0, a momentum and a mean, and is rid of the latter two when it ends."""
    federation = normed([6, 6, 6])
    w0 = model_of(federation)
    method = fupareto.FUPareto(training=fupareto.FedAvg(rounds=8, lr=0.1, batch_size=4), rounds=2)
    run = fupareto.unlearn(federation, w0, forget=["c0"], method=method)
    assert run.summary()["stored"] == 3 * 4 * w0.numel()
    kept = fupareto.unlearn(federation, w0, forget=["c0"], method=MoDe(rounds=2, recovery_rounds=0))
    assert kept.summary()["stored"] == 4 * w0.numel()  # the new model


def test_a_run_leaves_threads_and_their_number_as_they_were() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        names = {t.name for t in threading.enumerate()}
        federation = normed([9, 9])
        fupareto.train(federation, model_of(federation), fupareto.FedAvg(rounds=1, batch_size=4)).summary()
        with pytest.raises(UserError):
            fupareto.train(normed([1, 1]), model_of(federation), fupareto.FedAvg(rounds=1, batch_size=4))
        assert torch.get_num_threads() == 3
        assert {t.name for t in threading.enumerate()} == names
    finally:
        torch.set_num_threads(before)


def test_training_that_has_diverged_stops(tmp_path: Path) -> None:
    """Nobody waits for the last of two thousand rounds that cannot move the model any more."""
    ruined = TINY.model_copy(update={"train": TINY.train.model_copy(update={"rounds": 9, "lr": 1e9})})
    for resume in (False, True):
        with pytest.raises(
            UserError, match=r"diverged: no client.* in rounds \d to \d .* beyond 1e\+10.*lower learning rate"
        ):
            experiment.train(ruined, tmp_path / "run", resume=resume)
    assert len(Run(tmp_path / "run").rounds()) == 6  # each time three, and none is lost
    assert not (tmp_path / "run" / "summary.json").exists()


def test_silence_is_not_divergence() -> None:
    ruined, silent = "answered with numbers that are not finite", "did not answer in 5 s"
    assert not diverged({"1": ruined, "2": silent, "3": silent})
    assert not diverged({})
    assert diverged({"1": ruined})
    assert diverged({"1": ruined, "2": ruined, "3": silent})  # one that is absent does not hide it
