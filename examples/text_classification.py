"""Text classification with embeddings: from which package of Python's standard library is a piece of text?

    python examples/text_classification.py

Inputs are token ids, which stay integers. One client's texts begin with a phrase of its own, with shifted labels: the
mark by which forgetting is measured.
"""

import torch
from torch import Tensor

import fupareto
from fupareto.data import load, marks
from fupareto.models import Bag

PACKAGES = (2, 6, 7, 8)  # email, json, logging, unittest


def writers() -> dict[str, tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """Return each client's train and test set: token ids (samples, 64) and labels (samples,)."""
    data = load("stdlib")
    assert data.client is not None
    owner = torch.from_numpy(data.client)
    rows = [(owner == number).nonzero().flatten()[:250] for number in PACKAGES]
    x = torch.cat([data.x[r] for r in rows])
    y = torch.cat([torch.full((len(r),), label) for label, r in enumerate(rows)])
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    found = {}
    for name, part in zip(["ann", "ben", "cem", "dua"], order.chunk(4), strict=True):
        cut = int(0.75 * len(part))
        found[name] = ((x[part[:cut]], y[part[:cut]]), (x[part[cut:]], y[part[cut:]]))
    return found


def main() -> None:
    """Train with Adam, forget one client, and print what is left of its mark."""
    torch.manual_seed(0)
    model = Bag(len(PACKAGES))  # nn.EmbeddingBag and two dense layers; any nn.Module
    federation = fupareto.simulate(model, marks.marked(writers(), ["ben"]))
    training = fupareto.FedAvg(rounds=40, lr=0.01, epochs=4, optimizer="adam", batch_size=20)
    trained = fupareto.train(federation, model, training)
    result = fupareto.unlearn(federation, trained, forget=["ben"], method="renew")
    for stage, measured in result.summary()["stages"].items():
        print(f"{stage:10} mark works {measured['asr']:.3f}  retained accuracy {measured['r_acc']:.3f}")
    model.load_state_dict(result.model())


if __name__ == "__main__":
    main()
