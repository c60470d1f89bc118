"""What a run will take is known before it starts, and a run that does not fit is refused with advice that helps."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from federation.worlds import FORGET, clients, plain, start
from fupareto import UserError, api, models, parameters
from fupareto.federation import SimulatedFederation
from fupareto.federation.questions import Answer, Failure, Gradient, Question
from fupareto.methods import FedAvg, Method
from fupareto.methods.registry import METHODS, find
from fupareto.methods.sequential import Sequential
from fupareto.run import budget
from fupareto.tasks.losses import Loss
from presets import guard

CPU = torch.device("cpu")
PEAK = Path(__file__).with_name("peak.py")
CONSTANT = 20e6  # bytes: allocators, caches, Python


def engine(count: int = 6) -> SimulatedFederation:
    return SimulatedFederation(plain(), clients(count=count), workers=2)


def only(monkeypatch: pytest.MonkeyPatch, free: int | None) -> None:
    monkeypatch.setattr(budget, "available", lambda device: free)


# What a run takes --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fupareto", {"rounds": 2, "renewal": 0.01}),
        ("fupareto:guard", {"rounds": 2, "recovery_rounds": 1}),
        ("fupareto:guard", {"rounds": 2, "recovery_rounds": 1, "participation": 0.1}),
        ("fedosd", {"rounds": 1, "recovery_rounds": 1}),
        ("fedavg", {"rounds": 2}),
    ],
    ids=["fupareto", "guard", "guard, a tenth", "fedosd", "fedavg"],
)
def test_the_peak_is_as_predicted(name: str, options: dict[str, Any]) -> None:
    """200 clients, 48,010 parameters: one float32 copy of all gradients is 38 MB, and a second one would be seen."""
    chosen = ["wide", "[64]", "200", "20", name, json.dumps(options), "20"]
    for _ in range(3):  # what threads leave unused in their heaps depends on which of them is kept waiting
        done = subprocess.run([sys.executable, str(PEAK), *chosen], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        if found["grew"] <= found["needed"] + CONSTANT:
            break
    assert found["parameters"] == 48_010
    assert found["grew"] <= found["needed"] + CONSTANT, found
    assert found["needed"] <= 2 * found["grew"] + CONSTANT, found


def test_the_sizes_that_are_promised() -> None:
    """50 clients with NFResNet-18 in 2 GiB, 1,000 with LeNet-5 in 1 GiB, over the data."""

    def needed(model: str, shape: tuple[int, ...], classes: int, count: int) -> int:
        x, y = torch.zeros(1000, *shape), torch.arange(1000) % classes
        few = {"train": (x[:1], y[:1])}  # what is needed goes by the client with the most samples
        held = {"0": {"train": (x, y)}, **{str(k): few for k in range(1, count)}}
        module = models.build(model, shape, classes, 0)
        return budget.need(guard(), SimulatedFederation(module, held, workers=2), 5, count - 5)

    assert needed("nfresnet18", (3, 32, 32), 100, 50) <= 2 * 2**30
    assert needed("lenet5", (1, 28, 28), 10, 1000) <= 2**30


def test_what_methods_hold_grows_with_clients_only_where_it_must() -> None:
    streaming = {"fedavg", "retrain", "renew", "not", "finetune", "mode", "fedau", "rewind", "ridge"}
    by_leaving = {"fupga", "fededitor"}
    by_staying = {"federaser", "fupareto"}  # after renewal, forget clients send losses only
    for name in [*METHODS, "fupareto:guard"]:
        method = find(name)
        more_stay, more_leave = method.rows(5, 1000) - method.rows(5, 100), method.rows(50, 100) - method.rows(5, 100)
        assert (more_stay == 0) == (name in streaming | by_leaving), name
        assert (more_leave == 0) == (name in streaming | by_staying), name


@pytest.mark.parametrize("name", [*METHODS, "fupareto:guard"])
def test_the_docs_say_what_methods_hold(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    (formula,) = re.findall(rf"^\| `{name}` \| `(.+)` \|$", page, re.MULTILINE)
    for f, r in ((1, 2), (5, 15), (40, 10)):
        assert eval(formula, {"f": f, "r": r, "a": r, "max": max}) == find(name).rows(f, r)


def test_participation_is_what_it_saves() -> None:
    assert guard().rows(5, 1000) == 1011  # w0, everybody who stays, two guards of everybody who leaves
    assert guard(participation=0.1).rows(5, 1000) == 111  # the same with 100
    assert guard(recovery="none").rows(500, 10) < guard().rows(500, 10)
    assert guard(recovery_rounds=0).rows(500, 10) < guard().rows(500, 10)
    assert Sequential(guard(), 5).rows(5, 1000) > guard().rows(1, 1004)


def test_the_batch_of_training_counts_only_where_clients_train() -> None:
    assert guard(batch_size=77).local_batch == 1  # full gradients go over the data by pieces of the engine's choice
    assert guard(batch_size=77, gradient="pseudo").local_batch == FedAvg(batch_size=77).local_batch == 77
    assert Sequential(guard(batch_size=77, gradient="pseudo"), 2).local_batch == 77


def passing(*shape: int) -> Callable[[torch.nn.Module, int], tuple[torch.Tensor, torch.Tensor]]:
    def forward(module: torch.nn.Module, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.zeros(samples, *shape)
        return x, module(x)

    return forward


def test_activations_are_what_forward_leaves() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 3))
    assert parameters.activations(module, passing(8)) == (0, 4 * 12)  # tanh's output; the input is the data's
    fixed, each = parameters.activations(models.build("nfresnet18", (3, 32, 32), 10, 0), passing(3, 32, 32))
    assert 0 < fixed < 50e6  # standardised weights, once whatever the batch
    assert 1e6 < each < 5e6


# What there is -----------------------------------------------------------------------------------------------------


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n"}
V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8000 * 1024),
        ({"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "max\n", f"{V2}/memory.current": "5\n"}, 8000 * 1024),
        ({"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "9000", f"{V2}/memory.current": "5000"}, 4000),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                f"{V2}/a/b/memory.max": "max",
                f"{V2}/a/b/memory.current": "100",
                f"{V2}/a/memory.max": "7000",
                f"{V2}/a/memory.current": "6000",
                f"{V2}/a/memory.stat": "anon 1\ninactive_file 500\n",
            },
            1500,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/x\n4:cpuset,memory:/docker/77\n1:name=systemd:/\n",
                f"{V1}/memory.limit_in_bytes": "3000",  # a container sees its own group as the root
                f"{V1}/memory.usage_in_bytes": "2500",
                f"{V1}/memory.stat": "inactive_file 9\ntotal_inactive_file 20\n",
            },
            520,
        ),
        (
            {"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "100", f"{V2}/memory.current": "5000"},
            1,
        ),
    ],
    ids=["no group", "no limit", "limit", "limit above, files cached", "version 1, in a container", "beyond the limit"],
)
def test_the_least_of_what_the_machine_and_its_groups_leave(files: dict[str, str], free: int, tmp_path: Path) -> None:
    assert budget.available(CPU, tree(tmp_path, {**MEMINFO, **files})) == free


def test_where_nobody_says_nothing_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert budget.available(torch.device("meta")) is None
    monkeypatch.setattr(os, "sysconf", lambda name: 7)
    assert budget.available(CPU, tmp_path) == 49
    monkeypatch.delattr(os, "sysconf")
    assert budget.available(CPU, tmp_path) is None
    only(monkeypatch, None)
    budget.check(guard(), engine(), 2, 4)


# Refusal -----------------------------------------------------------------------------------------------------------


def test_a_run_that_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, budget.need(guard(), engine(), 2, 4))
    budget.check(guard(), engine(), 2, 4)
    only(monkeypatch, budget.need(guard(), engine(), 2, 4) - 1)
    with pytest.raises(UserError):
        budget.check(guard(), engine(), 2, 4)


def test_the_words_of_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    clients_, method = engine(), guard()
    only(monkeypatch, budget.need(guard(participation=0.1), clients_, 5, 5000))
    with pytest.raises(UserError) as refused:
        budget.check(method, clients_, 5, 5000)
    for words in (
        "fupareto with 5005 clients needs about",
        "are available",
        "participation below 1, such as 0.1, which would",
    ):
        assert words in str(refused.value)
    only(monkeypatch, 10)
    with pytest.raises(UserError, match=r"Set participation below 1; or use .* such as retrain or mode\.$"):
        budget.check(method, clients_, 5, 5000)
    with pytest.raises(UserError, match=r"are available\. Use a smaller model, fewer clients or fewer workers\.$"):
        budget.check(FedAvg(), clients_, 0, 6)


@pytest.mark.parametrize("method", [guard(rounds=1), find("fedosd")])
def test_nothing_is_left_behind(method: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, 10)
    federation = engine()
    with pytest.raises(UserError, match="not enough memory"):
        api.unlearn(federation, start(), list(FORGET), method, out=tmp_path / "run")
    with pytest.raises(UserError, match="not enough memory"):
        api.train(federation, start(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Answers do not pile up --------------------------------------------------------------------------------------------


class Slow(SimulatedFederation):
    """Counts how many clients have been answered for before somebody took the answer."""

    ahead = 0
    taken = 0

    def settle(self) -> None:
        assert self._pool is not None
        self._pool.submit(int).result()

    def _answer(self, client: str, question: Question) -> Answer | Failure:
        self.ahead = max(self.ahead, int(client[1:]) - self.taken)
        return super()._answer(client, question)


@pytest.mark.parametrize(("workers", "size", "most"), [(1, 2**25, 2), (2, 2**25, 4), (2, 100, 32)])
def test_only_so_many_are_asked_ahead(workers: int, size: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Slow(plain(), clients(count=80), workers=workers)
    monkeypatch.setattr("fupareto.federation.simulated.ROOM", 8 * 4 * federation.layout.size * 100 // size)
    seen = []
    for i, answer in federation.ask(dict.fromkeys(federation.ids, _question())):
        assert not isinstance(answer, Failure)
        federation.settle()  # whoever could be asked by now has been
        federation.taken += 1
        seen.append(i)
    assert seen == list(federation.ids)
    assert min(most // 2, 4) <= federation.ahead <= most  # how many begin before anybody looks varies


def test_the_largest_clients_begin_and_answers_keep_their_order() -> None:
    begun = []

    class Watched(SimulatedFederation):
        def _answer(self, client: str, question: Question) -> Answer | Failure:
            begun.append(client)
            return super()._answer(client, question)

    data = clients(count=4)
    sizes = {"c0": 3, "c1": 9, "c2": 5, "c3": 7}
    unequal = {i: {name: (x[: sizes[i]], y[: sizes[i]]) for name, (x, y) in data[i].items()} for i in sizes}
    federation = Watched(plain(), unequal, workers=1)
    assert [i for i, _ in federation.ask(dict.fromkeys(federation.ids, _question()))] == ["c0", "c1", "c2", "c3"]
    assert begun == ["c1", "c3", "c2", "c0"]


def test_a_caller_that_stops_early_stops_the_rest() -> None:
    federation = Slow(plain(), clients(count=80), workers=1)
    with federation.session():
        asking = iter(federation.ask(dict.fromkeys(federation.ids, _question())))
        next(asking)
        asking.close()  # type: ignore[attr-defined]
        federation.settle()
    assert federation.ahead <= 34


def _question() -> Question:
    return Gradient(start(), Loss("ce"))
