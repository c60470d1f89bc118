"""The same deployment with TLS, a key for every node and a membership file: nobody takes part who is not a member.

With another version of Flower too, where one is installed in a directory of its own that FUPARETO_OTHER_FLOWER names
(`make test-flower`).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import fupareto
from fupareto.run.directory import Run

from .deployed import CLIENTS, OTHER, assert_as_expected, config, with_other
from .example import APP
from .processes import Deployment, deployment

TOOLS = ("openssl", "ssh-keygen")
pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"certificates need {' and '.join(TOOLS)}"),
]


VERSIONS = [None, pytest.param(OTHER, marks=with_other)]


@pytest.fixture(scope="module", params=VERSIONS, ids=["installed Flower", "another Flower"])
def secure_link(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    flower = Path(request.param) if request.param else None
    with deployment(tmp_path_factory.mktemp("secure"), CLIENTS, tls=True, warm=True, flower=flower) as running:
        yield running


def test_the_same_with_tls_and_keys(
    secure_link: Deployment, start: Path, expected: fupareto.Result, tmp_path: Path
) -> None:
    members = tmp_path / "members.toml"
    keys = secure_link.directory / "keys"
    members.write_text("[clients]\n" + "".join(f'{i} = "{keys / i}.key.pub"\n' for i in CLIENTS))
    secure_link.make_keys("stranger", "impostor")
    with pytest.raises(RuntimeError, match="Failed to activate SuperNode"):
        secure_link.start_node("stranger")
    secure_link.register_nodes("impostor")
    secure_link.start_node("impostor", name="7")  # registered, and says that it is another client
    done = secure_link.run(APP, config(start, tmp_path / "run", f'members="{members}"'))
    assert secure_link.status() == "finished:completed", done.stdout
    run = Run.open(tmp_path / "run")
    assert_as_expected(run, expected)
    assert run.summary["membership"]["clients"] == sorted(CLIENTS)
    assert "takes no part: it says that it is '7', with a key that is not in the membership file" in done.stdout
