"""A ridge head forgets exactly: it equals the head that the retained clients train alone, and a closed form."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fupareto
from fupareto import parameters
from fupareto.errors import UserError
from fupareto.evidence import certify, verify
from fupareto.federation.simulated import SimulatedFederation
from fupareto.methods.ridge import Ridge
from fupareto.run.directory import Run

NAMES = "abcde"


def samples(seed: int, count: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.arange(count) % 3
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed)) + y[:, None], y


def model() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))


def federation(names: str = NAMES) -> SimulatedFederation:
    return fupareto.simulate(model(), {i: (samples(ord(i)), samples(ord(i) + 99)) for i in names}, workers=1)


def closed_form(names: str, ridge: float, without: dict[str, list[int]] | None = None) -> NDArray[np.float64]:
    """Solve the regression in numpy, by least squares on the stacked rows."""
    net, rows, targets = model(), [], []
    for i in names:
        x, y = samples(ord(i))
        keep = [k for k in range(len(y)) if k not in (without or {}).get(i, [])]
        with torch.no_grad():
            features = net[1](net[0](x[keep])).double().numpy()  # type: ignore[index]
        rows.append(np.c_[features, np.ones(len(keep))])
        targets.append(np.eye(3)[y[keep].numpy()])
    stacked, wanted = np.vstack(rows), np.vstack(targets)
    wide = stacked.shape[1]
    found: NDArray[np.float64] = np.linalg.lstsq(
        np.vstack([stacked, np.sqrt(ridge) * np.eye(wide)]), np.vstack([wanted, np.zeros((wide, 3))]), rcond=None
    )[0]
    return found


def head(result: fupareto.Result, stage: str) -> NDArray[np.float32]:
    w = result.model(stage)
    return np.vstack([w["2.weight"].numpy().T, w["2.bias"].numpy()])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ridge") / "run"
    result = fupareto.train(federation(), model(), Ridge(), out=place, record=["ridge"])
    np.testing.assert_allclose(head(result, "initial"), closed_form(NAMES, 1.0), atol=1e-5)
    return place


@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=3), st.sampled_from([0.1, 1.0, 10.0]))
@settings(max_examples=12, deadline=None)
def test_forgetting_equals_retraining(trained: Path, gone: set[str], ridge: float) -> None:
    rest = "".join(i for i in NAMES if i not in gone)
    result = fupareto.unlearn(federation(), trained, sorted(gone), Ridge(ridge=ridge))
    retrained = fupareto.train(federation(rest), model(), Ridge(ridge=ridge))
    forgot, alone = result.outcome.model("unlearned"), retrained.outcome.model("initial")
    assert forgot is not None
    assert alone is not None
    assert torch.equal(forgot, alone)  # the same sums in the same order
    np.testing.assert_allclose(head(result, "unlearned"), closed_form(rest, ridge), atol=1e-5)
    assert result.rounds[0]["exact"]


def test_no_client_is_asked(trained: Path) -> None:
    """A client that is gone can be forgotten, and so it can while the others sleep."""
    from fupareto.federation.wrappers import Without

    asleep = Without(federation(), tuple(NAMES))
    method = Ridge()
    from fupareto.federation.history import History
    from fupareto.federation.recording import WithHistory

    history = History.open(trained / "history")
    assert history is not None
    engine = WithHistory(asleep, history)
    w0 = parameters.read(model())
    state = method.step(engine, method.init(engine, w0, fupareto.Request(("b",))))
    assert state.record["missing"] == {}
    awake = fupareto.unlearn(federation(), trained, ["b"], method).outcome.model("unlearned")
    assert awake is not None
    kept = federation().layout.head()
    assert torch.equal(state.w[kept.start :], awake[kept.start :])


def test_features_of_an_earlier_training_make_it_inexact(tmp_path: Path) -> None:
    before = fupareto.train(federation(), model(), fupareto.FedAvg(rounds=1), measure_every=0)  # in memory
    fupareto.train(federation(), before, Ridge(), out=tmp_path / "run", record=["ridge"], measure_every=0)
    assert not fupareto.unlearn(federation(), tmp_path / "run", ["b"], Ridge(), measure_every=0).rounds[0]["exact"]


def test_samples(trained: Path, tmp_path: Path) -> None:
    rows = {"b": [0, 4, 5]}
    request = fupareto.Request(samples={"b": (0, 4, 5)})
    result = fupareto.unlearn(federation(), trained, request, Ridge(), out=tmp_path / "rows")
    np.testing.assert_allclose(head(result, "unlearned"), closed_form(NAMES, 1.0, rows), atol=1e-5)
    second = fupareto.unlearn(federation(), tmp_path / "rows", ["c"], Ridge())
    np.testing.assert_allclose(head(second, "unlearned"), closed_form("abde", 1.0, rows), atol=1e-5)


def test_the_audit_compares_with_a_ridge_that_is_trained_anew(trained: Path, tmp_path: Path) -> None:
    """Not with FedAvg: a ridge head that the retained clients train is what forgetting must equal."""
    result = fupareto.unlearn(federation(), trained, ["b"], Ridge(), out=tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # how it was trained is known
        found = result.audit(retrain=1)
    made = Run.open(tmp_path / "run/retrained")
    assert made.config["method"] == {"name": "ridge", "ridge": 1.0, "anew": True}
    assert made.summary["method"] == "ridge"
    again = fupareto.Result.load(federation(), tmp_path / "run/retrained")
    np.testing.assert_allclose(head(again, "unlearned"), closed_form("acde", 1.0), atol=1e-5)
    kept, alone = result.outcome.model("unlearned"), again.outcome.model("unlearned")
    assert kept is not None
    assert alone is not None
    assert torch.equal(kept, alone)
    assert found["truth"]
    path = certify(tmp_path / "run")
    assert [f.text for f in verify(path) if f.level == "failed"] == []  # equal to the kept model, as it must be


def test_another_method_is_compared_with_a_ridge_too(trained: Path, tmp_path: Path) -> None:
    result = fupareto.unlearn(federation(), trained, ["b"], fupareto.FUPareto(rounds=1), out=tmp_path / "run")
    result.audit(retrain=1)
    assert Run.open(tmp_path / "run/retrained").config["method"]["name"] == "ridge"
    path = certify(tmp_path / "run")
    shutil.copy(tmp_path / "run/unlearned.safetensors", tmp_path / "run/retrained/unlearned.safetensors")
    assert any(f.about == "retrained" and f.level == "failed" for f in verify(path))


def test_what_it_needs(trained: Path) -> None:
    with pytest.raises(UserError, match="--record ridge"):
        fupareto.unlearn(federation(), model(), ["a"], "ridge")
    bare = torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False))
    clients = {i: (samples(ord(i)), samples(ord(i) + 99)) for i in NAMES}
    with pytest.raises(UserError, match="with a bias"):
        fupareto.train(fupareto.simulate(bare, clients), bare, Ridge())
