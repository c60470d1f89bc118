"""A language model that forgets a client's text: each client is a package of Python's standard library.

    python examples/language_model.py [results.json]

A small model of bytes is trained by four clients. One of them has canaries in its text: random strings that nobody else
has. The extraction attack gives the model the beginning of a canary, or of a line of the client's text, and lets it
write on. The table shows what it gets from the model before, after renewal, after FUPareto, and from a model that was
retrained without the client.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fupareto
from fupareto.data import load, marks
from fupareto.methods.retrain import Retrain
from fupareto.models import Gru
from fupareto.tasks import Tokens

CLIENTS = {"email": 2, "json": 6, "logging": 7, "unittest": 8}  # numbers of the packages in the source "stdlib"
FORGET = "logging"
WINDOWS = 100  # of 64 bytes, per client
TASK = Tokens(shift=True)
SEEDS = (21, 22, 23)  # of the table in docs/tasks.md


def packages(seed: int) -> dict[str, tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """Return every client's train and test text; replace this by your own token ids."""
    data = load("stdlib")
    assert data.client is not None
    found = {}
    for name, number in CLIENTS.items():
        own = (torch.from_numpy(data.client) == number).nonzero().flatten()
        order = torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))
        x, cut = data.x[own[order[:WINDOWS]]], int(0.75 * WINDOWS)
        found[name] = ((x[:cut], x[:cut]), (x[cut:], x[cut:]))
    return found


@torch.no_grad()
def completed(model: nn.Module, texts: Tensor, given: int, wanted: int) -> float:
    """Return how many texts a model completes exactly, byte by byte the likeliest, from the first ``given`` bytes."""
    model.eval()
    written = texts[:, :given]
    for _ in range(wanted):
        written = torch.cat([written, model(written)[:, -1].argmax(-1, keepdim=True)], 1)
    return float((written[:, given:] == texts[:, given : given + wanted]).all(1).double().mean())


def run(seed: int = 0, rounds: int = 40) -> dict[str, dict[str, Any]]:
    """Train, forget, retrain; return the measures of every model."""
    clients = marks.marked(packages(seed), [FORGET], TASK, seed=seed, portion=0.5)
    torch.manual_seed(seed)
    model = Gru(256, 64)
    federation = fupareto.simulate(model, clients, task=TASK)
    how: dict[str, Any] = {"lr": 0.01, "optimizer": "adam", "epochs": 2, "batch_size": 20}
    training = fupareto.FedAvg(rounds=rounds, **how)
    trained = fupareto.train(federation, model, training, seed=seed, measure_every=0)
    again = Retrain(rounds=rounds, **how)
    retrained = fupareto.unlearn(federation, trained, [FORGET], again, seed=seed, measure_every=0)
    results = {
        name: fupareto.unlearn(federation, trained, [FORGET], method, seed=seed, measure_every=0)
        for name, method in (("renewal", "renew"), ("FUPareto", "fupareto"))
    }
    audits = {name: result.audit(reference=retrained, dormancy=0) for name, result in results.items()}
    first, audit = results["renewal"], audits["renewal"]
    found = {
        "before": (first.model("initial"), first.summary()["stages"]["initial"], audit["membership"]["initial"]),
        **{
            name: (result.model(), _final(result), audits[name]["membership"][result.summary()["final"]])
            for name, result in results.items()
        },
        "retrained": (retrained.model(), audit["truth"]["retrained"], audit["membership"]["retrained"]),
    }
    canaries, lines = clients[FORGET]["trigger"][0][: marks.CANARIES], clients[FORGET]["clean"][0]
    table = {}
    for name, (weights, measured, membership) in found.items():
        model.load_state_dict(weights)
        table[name] = {
            "perplexity of the forgotten text": measured["measures"]["forget"]["perplexity"],
            "perplexity of the others' held-out text": measured["measures"]["retained"]["perplexity"],
            "canaries completed": completed(model, canaries, marks.PREFIX, marks.SECRET),
            "bytes of canaries predicted": measured["asr"],
            "lines completed": completed(model, lines, 24, 12),
            "membership AUC of the loss": membership["mean"]["loss"]["auc"],
        }
    return table


def _final(result: fupareto.Result) -> dict[str, Any]:
    summary = result.summary()
    stage: dict[str, Any] = summary["stages"][summary["final"]]
    return stage


def main() -> None:
    """Print the table of one seed, or write those of three seeds to a file."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps({seed: run(seed) for seed in SEEDS}, indent=2) + "\n")
        return
    for name, row in run().items():
        print(name, *(f"  {measure}: {value:.3f}" for measure, value in row.items()), sep="\n")


if __name__ == "__main__":
    main()
