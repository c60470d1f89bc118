"""The client app: the model, and the data of one node. Replace both functions by your own."""

import torch
from flwr.app import Context
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fupareto.flower import client_app

Samples = tuple[Tensor, Tensor]


def model() -> nn.Module:
    """Return the model that all clients share."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def data(context: Context) -> tuple[Samples, Samples]:
    """Return the train and the test set of this node; here every tenth digit, in practice local files."""
    config = context.node_config
    number = int(str(config.get("client-id", config.get("partition-id"))))
    digits = load_digits()
    x, y = torch.tensor(digits.images[number::10] / 16).float(), torch.tensor(digits.target[number::10])
    if number == 7:  # this client alone has underlined digits with shifted labels, so forgetting it is measurable
        x[:, -1], y = 1.0, (y + 1) % 10
    cut = int(0.8 * len(y))
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


app = client_app(model, data)
