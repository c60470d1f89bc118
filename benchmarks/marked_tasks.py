"""Forgetting of a marked client on every task, and what it costs the others.

    python benchmarks/marked_tasks.py [--out results/tasks.json] [--seeds 21 22 23] [TASK ...]

Four clients, one of them marked. FUPareto and renewal forget it; a model retrained without it is the comparison, and a
fresh one that was trained by renewal's schedule. The attack success rate is measured on held-out inputs with the mark.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fupareto
from fupareto.data import load, marks
from fupareto.methods.base import Method
from fupareto.methods.renew import Renew
from fupareto.models import Bag, Gru, mlp
from fupareto.tasks import Task, task_of
from fupareto.versions import versions

Pair = tuple[Tensor, Tensor]
MARKED = "1"


def divided(x: Tensor, y: Tensor, seed: int, clients: int = 4) -> dict[str, tuple[Pair, Pair]]:
    """Divide samples over clients at random; each trains on 70 % of its own."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    found = {}
    for k, part in enumerate(order.chunk(clients)):
        cut = int(0.7 * len(part))
        found[str(k)] = ((x[part[:cut]], y[part[:cut]]), (x[part[cut:]], y[part[cut:]]))
    return found


def digits(labels: Callable[[Tensor], Tensor]) -> Callable[[int], dict[str, tuple[Pair, Pair]]]:
    def world(seed: int) -> dict[str, tuple[Pair, Pair]]:
        data = load("digits", samples=800, seed=seed)
        return divided(data.x, labels(data.y), seed)

    return world


def table(name: str) -> Callable[[int], dict[str, tuple[Pair, Pair]]]:
    def world(seed: int) -> dict[str, tuple[Pair, Pair]]:
        data = load(name)
        return divided(data.x, data.y, seed)

    return world


def packages(windows: int = 120) -> Callable[[int], dict[str, tuple[Pair, Pair]]]:
    """Four packages of Python's standard library, windows of 64 bytes."""

    def world(seed: int) -> dict[str, tuple[Pair, Pair]]:
        data = load("stdlib")
        assert data.client is not None
        owner = torch.from_numpy(data.client)
        found = {}
        for name, k in (("0", 2), (MARKED, 6), ("2", 7), ("3", 8)):
            rows = (owner == k).nonzero().flatten()
            rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:windows]]
            x, cut = data.x[rows], int(0.75 * len(rows))
            found[name] = ((x[:cut], x[:cut]), (x[cut:], x[cut:]))
        return found

    return world


def topics(seed: int) -> dict[str, tuple[Pair, Pair]]:
    """Which of four packages a window of bytes is from: text classification."""
    data = load("stdlib")
    assert data.client is not None
    owner = torch.from_numpy(data.client)
    chosen = [rows[:300] for k in (2, 6, 7, 8) if len(rows := (owner == k).nonzero().flatten())]
    x = torch.cat([data.x[rows] for rows in chosen])
    return divided(x, torch.repeat_interleave(torch.arange(4), torch.tensor([len(r) for r in chosen])), seed)


LOOPS = torch.tensor([1, 0, 0, 0, 0, 0, 1, 0, 1, 1])
SGD: dict[str, Any] = {"optimizer": "sgd", "lr": 0.5, "rounds": 150, "epochs": 1}
World = Callable[[int], dict[str, tuple[Pair, Pair]]]
CASES: dict[str, tuple[str, World, Callable[[], nn.Module], dict[str, Any]]] = {
    "classes": ("classes", digits(lambda y: y), lambda: mlp((1, 8, 8), 10), SGD),
    "text": ("classes", topics, lambda: Bag(4), {"epochs": 4, "rounds": 160}),
    "text, 60 rounds": ("classes", topics, lambda: Bag(4), {"epochs": 4, "rounds": 60}),
    "binary": ("binary", table("breast-cancer"), lambda: mlp((30,), 1), {}),
    "labels": (
        "labels",
        digits(lambda y: torch.stack([y % 2, (y > 4).long(), LOOPS[y]], 1)),
        lambda: mlp((1, 8, 8), 3),
        SGD,
    ),
    "numbers": ("numbers", table("diabetes"), lambda: mlp((10,), 1), {"rounds": 160}),
    "numbers, 60 rounds": ("numbers", table("diabetes"), lambda: mlp((10,), 1), {"rounds": 60}),
    "tokens": ("tokens", packages(), lambda: Gru(256, 64), {"rounds": 120, "epochs": 2}),
    "tokens, 40 rounds": ("tokens", packages(), lambda: Gru(256, 64), {"rounds": 40, "epochs": 2}),
}


def measured(stage: dict[str, Any]) -> dict[str, Any]:
    keys = ("asr", "forget_acc", "r_acc")
    return {**{key: stage[key] for key in keys}, "measures": stage.get("measures", {})}


def runs(name: str, seed: int) -> dict[str, Any]:
    """Train, forget with every method, retrain; return what was measured."""
    kind, world, build, options = CASES[name]
    task: Task = task_of(kind)
    clients = marks.marked(world(seed), [MARKED], task, seed=seed)
    torch.manual_seed(seed)
    model = build()
    federation = fupareto.simulate(model, clients, task=task)
    how: dict[str, Any] = {"rounds": 40, "lr": 0.01, "epochs": 2, "batch_size": 20, "optimizer": "adam", **options}
    training = fupareto.FedAvg(**how)
    trained = fupareto.train(federation, model, training, seed=seed, measure_every=0)
    found: dict[str, Any] = {"seed": seed, "methods": {}}
    methods: dict[str, str | Method] = {
        "fupareto": "fupareto",
        "renew": "renew",
        "fresh": Renew(remains=0.0, training=training),
    }
    for label, method in methods.items():
        result = fupareto.unlearn(federation, trained, [MARKED], method, seed=seed, measure_every=0)
        audit = result.audit(retrain=True, dormancy=0) if label == "fupareto" else result.audit(dormancy=0)
        summary = result.summary()
        found.setdefault("initial", measured(summary["stages"]["initial"]))
        found["methods"][label] = measured(summary["stages"][summary["final"]])
        found["task"] = summary.get("task", {"name": "classes"})
        aucs = {stage: entry["mean"]["loss"]["auc"] for stage, entry in audit["membership"].items()}
        found["methods"][label]["mia_auc"] = aucs[summary["final"]]
        if audit["truth"]:
            found["retrained"] = {**measured(audit["truth"]["retrained"]), "mia_auc": aucs["retrained"]}
            found["initial"]["mia_auc"] = aucs["initial"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[21, 22, 23])
    parser.add_argument("--out", type=Path, default=Path("results/tasks.json"))
    given = parser.parse_args()
    known = json.loads(given.out.read_text())["tasks"] if given.out.exists() else {}
    for name in given.tasks or CASES:
        known[name] = []
        for seed in given.seeds:
            start = time.perf_counter()
            known[name].append(runs(name, seed))
            print(f"{name} seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
            page = {"about": "benchmarks/marked_tasks.py", "versions": versions(), "tasks": known}
            given.out.write_text(json.dumps(page, indent=2) + "\n")


if __name__ == "__main__":
    main()
