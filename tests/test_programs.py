"""Programs as a new user writes them, one for each kind of model and data; each goes all the way."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import fupareto
from fupareto.methods.finetune import FineTune

G = torch.Generator().manual_seed(0)
Clients = dict[str, Any]


@dataclass
class Output:
    loss: Tensor | None
    logits: Tensor


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(30, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.embedding(ids))


class Encoder(nn.Module):
    """In the manner of Hugging Face: named inputs, an object with logits, a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8, padding_idx=0)
        self.shift = nn.Parameter(0.02 * torch.randn(8))
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Output:
        mask = attention_mask.unsqueeze(-1).float()
        logits = self.head(((self.embedding(input_ids) + self.shift) * mask).sum(1) / mask.sum(1))
        return Output(None if labels is None else nn.functional.cross_entropy(logits, labels), logits)


class Four(nn.Module):
    """An embedding of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(256, 2)

    def forward(self, ids: Tensor) -> Any:
        return self.embedding(ids)


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(0.1 * torch.randn(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Any:
        return self.base(x) + x @ self.a.T @ self.b.T


class Rows(Dataset[dict[str, Tensor]]):
    def __init__(self, columns: dict[str, Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["labels"])

    def __getitem__(self, k: int) -> dict[str, Tensor]:
        return {name: column[k] for name, column in self.columns.items()}


def ids(n: int) -> tuple[Tensor, Tensor]:
    y = torch.randint(3, (n,), generator=G)
    return torch.randint(10, (n, 6), generator=G) + 10 * y[:, None], y


def rows(n: int) -> Rows:
    x, y = ids(n)
    mask = (torch.arange(6) < torch.randint(2, 7, (n, 1), generator=G)).long()
    return Rows({"input_ids": x * mask, "attention_mask": mask, "labels": y})


def table(n: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4, generator=G)
    return x, x @ torch.tensor([1.0, -1.0, 0.5, 0.0])


def images(n: int) -> TensorDataset:
    y = torch.randint(3, (n,), generator=G)
    return TensorDataset(torch.randn(n, 1, 6, 6, generator=G) + y[:, None, None, None], y)


def both(draw: Callable[[int], Any]) -> Clients:
    return {name: (draw(25), draw(12)) for name in ("a", "b", "c")}


def normed() -> nn.Module:
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 3)]
    return nn.Sequential(*layers)


def adapted() -> nn.Module:
    base = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).requires_grad_(False)
    base[2] = LoRA(nn.Linear(16, 2))
    return base


def dense(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, outputs))


def listed(n: int) -> list[tuple[list[int], int]]:
    return [(x.tolist(), int(y)) for x, y in zip(*ids(n), strict=True)]


AUDITED = ("embedding bag", "one logit, (N, 1) floats", "regression", "batch norm", "dict in, object out", "LoRA")
PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Clients], str | None]] = {
    "embedding bag": (Bag, lambda: both(ids), None),
    "embedding bag, lists": (Bag, lambda: both(listed), None),
    "embedding bag, columns as lists": (
        Bag,
        lambda: both(lambda n: tuple(map(list, zip(*listed(n), strict=True)))),
        None,
    ),
    "embedding bag, ids of two bytes": (Bag, lambda: both(lambda n: (ids(n)[0].short(), ids(n)[1])), None),
    "one logit, (N, 1) floats": (lambda: dense(1), lambda: both(lambda n: _sign(n, torch.float32)[0]), "binary"),
    "one logit, (N,) integers": (lambda: dense(1), lambda: both(lambda n: _sign(n, torch.int64)[1]), "binary"),
    "regression": (lambda: dense(1), lambda: both(lambda n: TensorDataset(*table(n))), "numbers"),
    "batch norm": (normed, lambda: both(images), None),
    "dict in, object out": (Encoder, lambda: both(rows), "classes"),
    "a dict of lists": (Encoder, lambda: both(lambda n: {k: v.tolist() for k, v in rows(n).columns.items()}), None),
    "a DataLoader of dicts": (Encoder, lambda: both(lambda n: DataLoader(rows(n), batch_size=4)), None),
    "LoRA": (adapted, lambda: both(lambda n: (table(n)[0], (table(n)[1] > 0).long())), None),
    "several labels": (lambda: dense(2), lambda: both(lambda n: (table(n)[0], table(n)[0][:, :2] > 0)), "labels"),
}


def _sign(n: int, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor], TensorDataset]:
    x, y = table(n)
    return (x, (y > 0).to(dtype)[:, None]), TensorDataset(x, (y > 0).to(dtype))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_goes_all_the_way(name: str, tmp_path: Path) -> None:
    build, clients, task = PROGRAMS[name]
    torch.manual_seed(0)
    model = build()
    federation = fupareto.simulate(model, clients(), task=task)
    trained = fupareto.train(federation, model, fupareto.FedAvg(rounds=2, lr=0.02, optimizer="adam", batch_size=8))
    result = fupareto.unlearn(
        federation, trained, forget=["b"], method=fupareto.FUPareto(rounds=2, recovery_rounds=1, lr=0.1)
    )
    summary = result.summary()
    assert summary["status"] == "complete"
    assert ("measures" in summary["stages"]["initial"]) == (task not in (None, "classes"))
    if name in AUDITED:
        assert result.audit(retrain=True)["verdict"]["checks"]
    if name in ("regression", "LoRA"):
        assert result.report(tmp_path / "report.html").stat().st_size > 10_000
    model.load_state_dict(result.model(), strict=True)


def test_training_learns_and_keeps_the_frozen_base() -> None:
    torch.manual_seed(0)
    model = adapted()
    clients = PROGRAMS["LoRA"][1]()
    clients = {i: ((x, (x[:, 0] > 0).long()), test) for i, ((x, _), test) in clients.items()}
    federation = fupareto.simulate(model, clients)
    assert federation.layout.size == 4 * 16 + 2 * 4
    before = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    trained = fupareto.train(federation, model, fupareto.FedAvg(rounds=15, lr=0.05, optimizer="adam", batch_size=8))
    state = trained.model()
    assert all(torch.equal(state[name], p) for name, p in before.items())
    measured = federation.evaluate(trained.outcome.model("initial"), ["a"], ["train"])  # type: ignore[arg-type]
    assert (measured.accuracy("a", "train") or 0) > 0.8
    base = trained.summary()["base"]
    assert len(base) == 64
    with torch.no_grad():
        model[0].weight[0, 0] += 1  # type: ignore[index]
    assert fupareto.simulate(model, clients).layout.base() != base


def test_a_model_that_was_trained_on_another_frozen_base_is_refused(tmp_path: Path) -> None:
    """Whatever form it comes in; the vector alone does not tell."""
    clients, training = PROGRAMS["LoRA"][1](), fupareto.FedAvg(rounds=1, lr=0.05, batch_size=8)
    model = adapted()
    federation = fupareto.simulate(model, clients)
    trained = fupareto.train(federation, model, training, out=tmp_path / "run")
    in_memory = fupareto.train(federation, model, training)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight[0, 0] += 1  # type: ignore[index]
    elsewhere = fupareto.simulate(other, clients)
    for w0 in (tmp_path / "run", trained, in_memory, trained.model(), model):
        with pytest.raises(fupareto.UserError, match=r"other frozen parameters|frozen parameter .* has other values"):
            fupareto.unlearn(elsewhere, w0, ["a"], "finetune")
        fupareto.unlearn(federation, w0, ["a"], FineTune(rounds=1, batch_size=8))
    with pytest.raises(fupareto.UserError, match="other frozen parameters"):
        fupareto.Result.load(elsewhere, tmp_path / "run")


def test_ragged_samples_need_a_collate_function() -> None:
    ragged = {i: [(torch.arange(2 + k % 3), k % 3) for k in range(12)] for i in "abc"}
    clients = {i: (held, held[:6]) for i, held in ragged.items()}
    with pytest.raises(fupareto.UserError, match=r"samples differ in shape.*collate="):
        fupareto.simulate(Bag(), clients)

    def padded(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        xs, ys = zip(*items, strict=True)
        return nn.utils.rnn.pad_sequence(list(xs), batch_first=True), torch.tensor(ys)

    federation = fupareto.simulate(Bag(), clients, collate=padded)
    trained = fupareto.train(federation, Bag(), fupareto.FedAvg(rounds=1, lr=0.1, batch_size=4, shuffle=True))
    assert fupareto.unlearn(federation, trained, ["b"], "renew").summary()["status"] == "complete"


def test_a_pair_that_is_no_train_and_test_set_is_explained() -> None:
    with pytest.raises(fupareto.UserError, match=r"inputs without targets; a client is \(\(train inputs"):
        fupareto.simulate(dense(1), {i: table(12) for i in "abc"}, task="numbers")


class Noisy(Dataset[tuple[Tensor, int]]):
    """Random augmentation: another sample whenever it is asked for."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, k: int) -> tuple[Tensor, int]:
        return torch.full((4,), float(k)) + torch.rand(4), k % 2


def test_augmentation_is_drawn_anew_for_every_epoch_and_repeatable() -> None:
    federation = fupareto.simulate(dense(2), {i: (Noisy(), Noisy()) for i in "ab"})
    train = federation.clients["a"]["train"]
    one, two, again = (train.epoch(seed).inputs for seed in (1, 2, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, two)
    assert torch.equal(train.still.inputs, next(train.batches(100)).inputs)
    state = torch.get_rng_state()
    train.epoch(3)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_in_words(dtype: torch.dtype) -> None:
    with pytest.raises(fupareto.UserError, match=r"call model.float\(\) first"):
        fupareto.simulate(dense(2).to(dtype), both(lambda n: (table(n)[0], (table(n)[1] > 0).long())))


def test_double_precision_and_bytes_work() -> None:
    clients = both(lambda n: (table(n)[0].double(), (table(n)[1] > 0).long()))
    fupareto.train(fupareto.simulate(dense(2).double(), clients), dense(2), fupareto.FedAvg(rounds=1))
    pixels = both(lambda n: (torch.randint(256, (n, 4), generator=G, dtype=torch.uint8), torch.arange(n) % 2))
    for model, dtype in ((dense(2), torch.float32), (dense(2).double(), torch.float64), (Four(), torch.int64)):
        assert fupareto.simulate(model, pixels).clients["a"]["train"].inputs.dtype == dtype
