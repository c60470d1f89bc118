"""The same deployment with TLS and a key for every node: encrypted, and nobody takes part who is not registered."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import fupareto
from fupareto.run.directory import Run

from .deployed import CLIENTS, assert_as_expected, config
from .example import APP
from .processes import Deployment, deployment

TOOLS = ("openssl", "ssh-keygen")
pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"certificates need {' and '.join(TOOLS)}"),
]


@pytest.fixture(scope="module")
def secure_link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("secure"), CLIENTS, tls=True) as running:
        yield running


def test_the_same_with_tls_and_keys(
    secure_link: Deployment, start: Path, expected: fupareto.Result, tmp_path: Path
) -> None:
    secure_link.make_keys("stranger")
    with pytest.raises(RuntimeError, match="Failed to activate SuperNode"):
        secure_link.start_node("stranger")
    done = secure_link.run(APP, config(start, tmp_path / "run"))
    assert secure_link.status() == "finished:completed", done.stdout
    assert_as_expected(Run.open(tmp_path / "run"), expected)
