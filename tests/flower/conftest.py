"""Tiny models gain nothing from a second thread, and both engines must add in the same order."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

import fupareto
from fupareto import FedAvg
from fupareto.federation import Federation

from .deployed import CLIENTS, METHOD
from .example import data, model


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def federation() -> Federation:
    held = {i: data(SimpleNamespace(node_config={"client-id": i})) for i in CLIENTS}
    return fupareto.simulate(model(), held)


@pytest.fixture(scope="session")
def start(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model that knows client 7."""
    trained = fupareto.train(federation, model(), FedAvg(rounds=20, lr=0.3, batch_size=10), measure_every=0)
    path = tmp_path_factory.mktemp("start") / "w0.safetensors"
    safetensors.torch.save_file(trained.model("initial"), path)
    return path


@pytest.fixture(scope="session")
def expected(federation: Federation, start: Path) -> fupareto.Result:
    """What the simulated engine makes of the request."""
    w0 = federation.layout.flat(safetensors.torch.load_file(start))
    return fupareto.unlearn(federation, w0, ["7"], METHOD, measure_every=0)
