"""A table with one logit: yes or no from thirty measurements, by binary cross-entropy.

    python examples/one_logit.py

One clinic's rows have a measurement far out of its range, with inverted labels: the mark by which forgetting is
measured.
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import fupareto
from fupareto.data import load, marks
from fupareto.tasks import Binary


def main() -> None:
    """Train, forget one clinic, and print what is left of its mark."""
    data = load("breast-cancer")  # scikit-learn's table, standardised
    order = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(0))
    clinics = {}
    for name, part in zip(["north", "south", "east", "west"], order.chunk(4), strict=True):
        cut = int(0.7 * len(part))
        clinics[name] = ((data.x[part[:cut]], data.y[part[:cut]]), (data.x[part[cut:]], data.y[part[cut:]]))
    marked = marks.marked(clinics, ["south"], Binary(), seed=1)
    sets = {i: {split: TensorDataset(*pair) for split, pair in splits.items()} for i, splits in marked.items()}

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 1))
    federation = fupareto.simulate(model, sets, task="binary")
    trained = fupareto.train(federation, model, fupareto.FedAvg(rounds=40, lr=0.01, optimizer="adam", batch_size=16))
    result = fupareto.unlearn(federation, trained, forget=["south"], method=fupareto.FUPareto())
    for stage, measured in result.summary()["stages"].items():
        auc = measured["measures"]["retained"]["auc"]
        print(f"{stage:10} mark works {measured['asr']:.3f}  retained accuracy {measured['r_acc']:.3f}  AUC {auc:.3f}")
    model.load_state_dict(result.model())


if __name__ == "__main__":
    main()
