"""Bring your own model and clients: four hospitals train a model, which then forgets one of them.

    python examples/bring_your_own_model.py [report.html]

The data are scikit-learn's breast-cancer table (569 patients, 30 measurements), divided over four hospitals.
"""

import sys

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import fupareto


def hospitals() -> dict[str, tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]]:
    """Return each hospital's train and test set; replace this by your own data."""
    table = load_breast_cancer()
    x = torch.tensor(table.data, dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0)
    y = torch.tensor(table.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    clients = {}
    for name, part in zip(["north", "south", "east", "west"], order.chunk(4), strict=True):
        cut = len(part) // 2  # audits need test samples too: of few, checks stay open
        clients[name] = ((x[part[:cut]], y[part[:cut]]), (x[part[cut:]], y[part[cut:]]))
    # The hospital to forget has shifted measurements and inverted labels, so the model learns something from it that no
    # other hospital has.
    (train_x, train_y), (test_x, test_y) = clients["west"]
    clients["west"] = ((train_x + 1.0, 1 - train_y), (test_x + 1.0, 1 - test_y))
    return clients


def main() -> None:
    """Train, unlearn, audit and report."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 128), nn.ReLU(), nn.Linear(128, 2))  # any nn.Module
    federation = fupareto.simulate(model, hospitals())

    trained = fupareto.train(federation, model, fupareto.FedAvg(rounds=100, lr=0.5, batch_size=16))
    result = fupareto.unlearn(federation, trained, forget=["west"])

    audit = result.audit(retrain=2, dormancy=40)  # attacks the model, and compares it with two retrained ones
    summary = result.summary()
    for stage, measured in summary["stages"].items():
        print(f"{stage:10} forget accuracy {measured['forget_acc']:.3f}  retained accuracy {measured['r_acc']:.3f}")
    for check in audit["verdict"]["checks"]:
        print(f"{check['result']:10} {check['claim']}")
    print(summary["verdict"])
    print("report:", result.report(sys.argv[1] if len(sys.argv) > 1 else "report.html"))
    model.load_state_dict(result.model())  # the model to keep


if __name__ == "__main__":
    main()
