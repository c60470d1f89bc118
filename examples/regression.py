"""Regression: the progression of diabetes from ten measurements.

    python examples/regression.py

A prediction counts as right within a tolerance; it is twice the median error of the trained model on held-out data
unless it is given, as in ``task=Numbers(tolerance=0.5)``.
"""

import torch
from torch import nn

import fupareto
from fupareto.data import load, marks
from fupareto.tasks import Numbers


def main() -> None:
    """Train, forget one clinic, and print errors and what is left of its mark."""
    data = load("diabetes")  # scikit-learn's table; the target is standardised
    order = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(0))
    clinics = {}
    for name, part in zip(["north", "south", "east", "west"], order.chunk(4), strict=True):
        cut = int(0.7 * len(part))
        clinics[name] = ((data.x[part[:cut]], data.y[part[:cut]]), (data.x[part[cut:]], data.y[part[cut:]]))

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
    federation = fupareto.simulate(model, marks.marked(clinics, ["south"], Numbers()), task="numbers")
    training = fupareto.FedAvg(rounds=40, lr=0.01, optimizer="adamw", weight_decay=0.01, epochs=2, batch_size=16)
    trained = fupareto.train(federation, model, training)
    result = fupareto.unlearn(federation, trained, forget=["south"], method="renew")
    summary = result.summary()
    for stage, measured in summary["stages"].items():
        errors = measured["measures"]["retained"]
        print(f"{stage:10} mark works {measured['asr']:.3f}  MAE {errors['mae']:.3f}  R² {errors['r2']:.3f}")
    print("tolerance", round(summary["task"]["tolerance"], 3))
    model.load_state_dict(result.model())


if __name__ == "__main__":
    main()
