"""The Python interface: a model and clients of the user's, from training to the report."""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import fupareto
from fupareto import FUPareto, UserError
from fupareto.run.directory import without_none
from presets import guard

ROOT = Path(__file__).parents[1]
Pair = tuple[Tensor, Tensor]
METHOD = guard(rounds=2, recovery_rounds=2, lr=0.1)


def samples(seed: int, count: int = 30) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    return torch.randn(count, 4, generator=generator) + y[:, None], y


def clients() -> dict[str, tuple[Any, Any]]:
    return {name: (samples(k), samples(100 + k, 12)) for k, name in enumerate(["north", "hospital-7", "<script>"])}


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def federation() -> fupareto.Federation:
    return fupareto.simulate(model(), clients())


@pytest.fixture(scope="module")
def trained(federation: fupareto.Federation) -> fupareto.Result:
    return fupareto.train(federation, model(), fupareto.FedAvg(rounds=5, lr=0.5, batch_size=10))


@pytest.fixture(scope="module")
def w0(federation: fupareto.Federation, trained: fupareto.Result) -> Tensor:
    return federation.layout.flat(trained.model("initial"))


def same(a: fupareto.Result, b: fupareto.Result, stage: str = "recovered") -> bool:
    left, right = a.model(stage), b.model(stage)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def test_training(trained: fupareto.Result) -> None:
    summary = trained.summary()
    assert summary["stages"].keys() == {"initial"}
    assert summary["stages"]["initial"]["r_acc"] > 0.5
    assert (summary["forget"], summary["final"], summary["verdict"]) == ([], "initial", "")
    module = model()
    module.load_state_dict(trained.model())
    assert [r["round"] for r in trained.rounds] == [1, 2, 3, 4, 5]


def test_forgetting(federation: fupareto.Federation, w0: Tensor, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    result = fupareto.unlearn(federation, w0, ["<script>"], METHOD, watch=seen.append)
    assert seen == result.rounds
    summary = result.summary()
    assert summary["stages"].keys() == {"initial", "unlearned", "recovered"}
    assert summary["forget"] == ["<script>"]
    assert summary["clients"] == ["north", "hospital-7", "<script>"]
    assert "<script>" in summary["verdict"]
    assert summary["stages"]["initial"]["asr"] is None
    assert summary["status"] == "complete"
    page = result.report(tmp_path / "report.html").read_text()
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    module = model()
    module.load_state_dict(result.model())
    kept = result.model(summary["final"])
    assert all(torch.equal(v, kept[k]) for k, v in module.state_dict().items())


def test_audit(federation: fupareto.Federation, trained: fupareto.Result, w0: Tensor, tmp_path: Path) -> None:
    method = guard(rounds=2, recovery_rounds=1)
    forget = [federation.ids[1]]
    result = fupareto.unlearn(federation, w0, forget, method, out=tmp_path / "run")
    found = result.audit()
    assert set(found["membership"]["initial"]["clients"]) == set(forget)
    assert (found["truth"], found["relearning"]) == (None, None)
    more = result.audit(reference=model(), training=fupareto.FedAvg(lr=0.1))
    assert "retrained" in more["membership"]
    assert more["relearning"]["lr"] == pytest.approx(0.001)
    assert (tmp_path / "run/audit.json").is_file()
    page = result.report(tmp_path / "report.html").read_text()
    assert 'id="relearning"' in page
    with pytest.raises(UserError, match="a training run forgets nothing"):
        trained.audit()


def test_default_method_and_module_as_start() -> None:
    few = {name: (samples(k, 6), samples(9 + k, 6)) for k, name in enumerate("ab")}
    federation = fupareto.simulate(model(), few, workers=1)
    result = fupareto.unlearn(federation, model(), forget=["a"])
    assert result.place.config["method"] == {"name": "fupareto", **without_none(asdict(FUPareto()))}
    assert len(result.rounds) <= 200


def test_seed_and_workers(w0: Tensor) -> None:
    results = [
        fupareto.unlearn(fupareto.simulate(model(), clients(), workers), w0, ["north"], METHOD) for workers in (1, 3)
    ]
    assert same(results[0], results[1])


class Pairs(Dataset[tuple[Any, int]]):
    """A torch data set of (array, int) pairs."""

    def __init__(self, pair: Pair) -> None:
        self.x, self.y = pair

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, k: int) -> tuple[Any, int]:
        return self.x[k].numpy(), int(self.y[k])


@pytest.mark.parametrize(
    "convert",
    [
        lambda pair: (pair[0].numpy(), pair[1].numpy()),
        lambda pair: (pair[0].double().numpy(), pair[1].numpy().astype(np.uint8)),
        lambda pair: [pair[0], pair[1].int()],
        lambda pair: TensorDataset(*pair),
        Pairs,
        lambda pair: [(x, int(y)) for x, y in zip(*pair, strict=True)],
    ],
    ids=["numpy", "numpy of other types", "list", "TensorDataset", "Dataset", "list of pairs"],
)
def test_data_in_any_form(convert: Any, federation: fupareto.Federation, w0: Tensor) -> None:
    converted = {name: (convert(train), convert(test)) for name, (train, test) in clients().items()}
    result = fupareto.unlearn(fupareto.simulate(model(), converted), w0, ["north"], METHOD)
    assert same(result, fupareto.unlearn(federation, w0, ["north"], METHOD))


def test_run_directory_and_resume(federation: fupareto.Federation, w0: Tensor, tmp_path: Path) -> None:
    whole = fupareto.unlearn(federation, w0, ["north"], METHOD, out=tmp_path / "whole")
    assert same(whole, fupareto.unlearn(federation, w0, ["north"], METHOD))

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fupareto.unlearn(federation, w0, ["north"], METHOD, out=tmp_path / "cut", watch=stop)
    resumed = fupareto.unlearn(federation, w0, ["north"], METHOD, out=str(tmp_path / "cut"), resume=True)
    assert same(whole, resumed)
    assert [r["round"] for r in resumed.rounds] == [1, 2, 3, 4]
    assert resumed.summary()["stages"] == whole.summary()["stages"]
    assert (tmp_path / "cut/summary.json").is_file()
    again = fupareto.unlearn(federation, w0, ["north"], METHOD, out=tmp_path / "cut", resume=True)
    assert same(whole, again)
    with pytest.raises(UserError, match="already exists"):
        fupareto.unlearn(federation, w0, ["north"], METHOD, out=tmp_path / "cut")
    with pytest.raises(UserError, match="another method"):
        fupareto.unlearn(federation, w0, ["north"], guard(), out=tmp_path / "cut", resume=True)
    with pytest.raises(UserError, match="another request"):
        fupareto.unlearn(federation, w0, ["hospital-7"], METHOD, out=tmp_path / "cut", resume=True)
    with pytest.raises(UserError, match="another seed"):
        fupareto.unlearn(federation, w0, ["north"], METHOD, seed=1, out=tmp_path / "cut", resume=True)


X, Y = samples(0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"north": ((X, Y + 1), (X, Y))},
            "client 'north', train data: labels from 1 to 3, but the model has 3 outputs",
        ),
        ({"north": ((X, Y), (X, Y - 1))}, "client 'north', test data: labels from -1"),
        ({"north": ((X, Y + 0.5), (X, Y))}, "labels must be whole numbers"),
        ({"north": ((X, X), (X, Y))}, "labels must be a vector of integers"),
        ({"north": ((X * np.nan, Y), (X, Y))}, "client 'north', train data: inputs contain NaN"),
        ({"north": ((X, Y[:-1]), (X, Y))}, "30 inputs but 29 labels"),
        ({"north": ((X[:0], Y[:0]), (X, Y))}, "no samples"),
        ({"north": ((X, Y), [])}, "client 'north', test data: no samples"),
        ({"north": ((X[:, :3], Y), (X, Y))}, "shape"),
        ({"north": (X, Y)}, "client 'north'"),
        ({"north": X}, "client 'north'"),
        ({"north": None}, "client 'north'"),
        ({"north": ((np.array([["a"] * 4] * 30), Y), (X, Y))}, "client 'north'"),
        ({"north": ([(X[0], "cat")], (X, Y))}, "client 'north'"),
        ({"north": ([(X[0], 1), (X[1, :2], 1)], (X, Y))}, "client 'north'"),
        ({"north": (7, (X, Y))}, "client 'north'"),
    ],
)
def test_data_that_cannot_be_used(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        fupareto.simulate(model(), {**clients(), **change})
    assert says in str(caught.value)


def test_models_that_cannot_be_used() -> None:
    with pytest.raises(UserError, match="the model cannot take samples of shape"):
        fupareto.simulate(nn.Linear(5, 3), clients())
    with pytest.raises(UserError, match="2 outputs"):
        fupareto.simulate(nn.Linear(4, 2), clients())
    with pytest.raises(UserError, match="no trainable parameter"):
        fupareto.simulate(nn.Linear(4, 3).requires_grad_(False), clients())
    with pytest.raises(UserError, match="at least two clients"):
        fupareto.simulate(model(), {"north": clients()["north"]})


@pytest.mark.parametrize(
    ("forget", "says"),
    [
        (["nowhere"], "no client 'nowhere' in the federation; it has north"),
        ([], "names no client"),
        (["north", "hospital-7", "<script>"], "forgets everything"),
        ("north", r"a list of client ids, .*: forget=\['north'\]"),
    ],
)
def test_requests_that_cannot_be_met(federation: fupareto.Federation, w0: Tensor, forget: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        fupareto.unlearn(federation, w0, forget, METHOD)


def test_other_mistakes(federation: fupareto.Federation, trained: fupareto.Result, w0: Tensor, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model of stage 'recovered'"):
        trained.model("recovered")
    for wrong in (w0[:-1], torch.zeros(3, 4), nn.Linear(2, 2)):
        with pytest.raises(UserError, match=r"has .* but the federation's model has"):
            fupareto.unlearn(federation, wrong, ["north"], METHOD)
        with pytest.raises(UserError, match=r"has .* but the federation's model has"):
            fupareto.train(federation, wrong)
    with pytest.raises(UserError, match="contains NaN or infinity"):
        fupareto.unlearn(federation, w0 * np.nan, ["north"], METHOD)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*file/report.html: Not a directory"):
        trained.report(tmp_path / "file/report.html")
    with pytest.raises(UserError, match="cannot create the directory"):
        fupareto.unlearn(federation, w0, ["north"], METHOD, out=tmp_path / "file/run")
    with pytest.raises(UserError, match="'fupareto' cannot train a model: FUPareto needs a request"):
        fupareto.train(federation, w0, METHOD)


def test_example(tmp_path: Path) -> None:
    script = ROOT / "examples/bring_your_own_model.py"
    done = subprocess.run([sys.executable, script, "page.html"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert all(word in done.stdout for word in ("initial", "unlearned", "west"))
    results = [line.split()[0] for line in done.stdout.splitlines() if line.split()[0] in ("shown", "open", "refuted")]
    assert "shown" in results
    assert "refuted" not in results, done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_a_history_that_cannot_be_kept_is_refused_before_training(
    federation: fupareto.Federation, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="did you mean 'federaser'"):
        fupareto.train(federation, model(), record=["federasr"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="out"):
        fupareto.train(federation, model(), record=["federaser"])


def test_a_run_is_not_resumed_from_another_model(federation: fupareto.Federation, tmp_path: Path) -> None:
    fupareto.unlearn(federation, model(), ["north"], METHOD, out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    other = {name: tensor + 1 for name, tensor in model().state_dict().items()}
    with pytest.raises(UserError, match="another initial model"):
        fupareto.unlearn(federation, other, ["north"], METHOD, out=tmp_path, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == before
