"""Names bound to keys, clients that are slow, and versions of Flower."""

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from federation.worlds import FORGET, clients, plain, start
from fupareto import UserError, api
from fupareto.evidence import schema
from fupareto.federation import Local
from fupareto.flower import compat, nodes, punctuality
from fupareto.flower.engine import FlowerFederation
from fupareto.flower.membership import NONE, Membership
from fupareto.flower.punctuality import Punctuality
from fupareto.methods import FedAvg, FUPareto
from fupareto.tasks.losses import Loss

from .grid import LocalGrid, app_of, grid_of

CE = Loss("ce")
W = start()
IDS = ("c0", "c1", "c2", "c3", "c4", "c5")
METHOD = FUPareto(rounds=2, recovery_rounds=1, lr=0.3)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MEETING", 0.0)


# Membership ----------------------------------------------------------------------------------------------------------


def new_key() -> ec.EllipticCurvePublicKey:
    return ec.generate_private_key(ec.SECP384R1()).public_key()


def pem(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def ssh(key: ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@pytest.fixture
def world(tmp_path: Path) -> tuple[LocalGrid, Membership, dict[str, ec.EllipticCurvePublicKey]]:
    """A grid whose nodes have the keys of their clients, and the membership file; one key is in a file of its own."""
    keys = {i: new_key() for i in IDS}
    grid = grid_of(plain, clients())
    grid.keys = {grid.number(i): pem(key) for i, key in keys.items()}
    (tmp_path / "c0.pub").write_text(ssh(keys["c0"]) + " a comment\n")
    lines = ['c0 = "c0.pub"', *(f'{i} = "{ssh(keys[i])}"' for i in IDS[1:])]
    (tmp_path / "members.toml").write_text("[clients]\n" + "\n".join(lines) + "\n")
    return grid, Membership.read(tmp_path / "members.toml"), keys


def federation_of(grid: LocalGrid, members: Membership | None = None, **options: Any) -> FlowerFederation:
    options = {"clients": 6, "timeout": 0.0, "patience": 0.0, **options}
    return FlowerFederation(grid, plain(), members=members, **options)


def test_members_take_part_and_the_run_says_who_they_are(world: Any) -> None:
    grid, members, _ = world
    result = api.unlearn(federation_of(grid, members), W, list(FORGET), METHOD)
    assert result.summary()["membership"] == {"sha256": members.sha256, "clients": list(IDS)}
    assert not any(r["missing"] for r in result.rounds)


def test_without_a_membership_file_the_run_and_its_certificate_say_so(tmp_path: Path) -> None:
    out = tmp_path / "run"
    api.unlearn(federation_of(grid_of(plain, clients())), W, list(FORGET), METHOD, out=out)
    from fupareto.evidence import certify

    certificate = schema.load(certify(out))
    assert certificate["summary"]["membership"] == NONE
    assert "Clients' names: " in schema.describe(certificate)
    assert "every node said itself" in schema.describe(certificate)


def test_a_stranger_cannot_invent_a_client_nor_take_a_name(world: Any) -> None:
    grid, members, _ = world
    for name in ("c9", "c0"):  # a new name, and somebody's
        number = grid.start(app_of(plain, {**clients(), "c9": clients()["c0"]}), {"client-id": name})
        grid.keys[number] = pem(new_key())
    federation = federation_of(grid, members)
    assert federation.ids == IDS
    assert federation.nodes.of["c0"] == min(grid.nodes)


def test_a_member_cannot_answer_for_another(world: Any) -> None:
    grid, members, keys = world
    grid.stop("c0")
    number = grid.start(app_of(plain, clients()), {"client-id": "c0"})
    grid.keys[number] = pem(keys["c5"])
    with pytest.raises(UserError, match=r"5 of 6 clients are connected after 0 seconds \(c1, c2, c3, c4, c5\)"):
        federation_of(grid, members)


def test_nobody_takes_over_after_a_missed_answer(world: Any) -> None:
    grid, members, keys = world
    federation = federation_of(grid, members)
    grid.of("c0").fault = lambda message, reply: None
    for key in (new_key(), keys["c5"]):
        number = grid.start(app_of(plain, clients()), {"client-id": "c0"})
        grid.keys[number] = pem(key)
    mine = federation.nodes.of["c0"]
    for _ in range(2):
        assert list(federation.train(W, IDS, CE, Local(0.1)).missing) == ["c0"]
    assert federation.nodes.of["c0"] == mine


def test_a_member_comes_back_with_its_key(world: Any) -> None:
    grid, members, keys = world
    federation = federation_of(grid, members)
    grid.stop("c0")
    assert list(federation.train(W, IDS, CE, Local(0.1)).missing) == ["c0"]
    grid.keys[grid.start(app_of(plain, clients()), {"client-id": "c0"})] = pem(keys["c0"])
    assert federation.train(W, IDS, CE, Local(0.1)).missing == {}


def test_a_node_that_refuses_to_say_its_name_does_not_stop_the_run() -> None:
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query("client")
    def here(message: Message, context: Any) -> Message:
        return Message(
            RecordDict({"fupareto.here": ConfigRecord({"ids": [], "refused": "x" * 10**6})}), reply_to=message
        )

    grid = grid_of(plain, clients())
    grid.start(app, {})
    assert federation_of(grid).ids == IDS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a membership file"),
        ("[clients", "is not a membership file"),
        ("clients = 3", "is not a membership file"),
        ('[clients]\na = "absent.pub"', "absent.pub"),
        ('[clients]\na = "ssh-rsa nonsense"', "the key of client 'a' is not a public key"),
        ("[clients]", "names 0 clients"),
    ],
)
def test_mistakes_in_a_membership_file(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "members.toml").write_text(text)
    with pytest.raises(UserError, match=words):
        Membership.read(tmp_path / "members.toml")


def test_two_clients_with_one_key(tmp_path: Path) -> None:
    text = ssh(new_key())
    (tmp_path / "members.toml").write_text(f'[clients]\na = "{text}"\nb = "{text}"\n')
    with pytest.raises(UserError, match="clients 'a' and 'b' have the same key"):
        Membership.read(tmp_path / "members.toml")


# Stragglers ----------------------------------------------------------------------------------------------------------


class SlowGrid(LocalGrid):
    """The replies of one client arrive late."""

    slow, seconds = "c5", 1.0

    def push_messages(self, messages: Any) -> Any:
        found = list(super().push_messages(messages))
        self.due = {m: time.monotonic() + (self.seconds if s.client == self.slow else 0.0)
                    for m, s in zip(found, self.sent[-len(found):], strict=True)}  # fmt: skip
        return found

    def pull_messages(self, message_ids: Any) -> Any:
        return super().pull_messages([m for m in message_ids if time.monotonic() >= self.due.get(m, 0.0)])


def slow_grid() -> SlowGrid:
    """Return a grid on which everybody is quick until ``seconds`` is set."""
    grid = SlowGrid()
    for client in IDS:
        grid.start(app_of(plain, clients()), {"client-id": client})
    grid.seconds = 0.0
    return grid


def test_a_question_goes_on_without_the_slowest() -> None:
    grid = slow_grid()
    federation = federation_of(grid, timeout=60.0, patience=5.0, wait_for=0.8)
    grid.seconds = 30.0
    began = time.monotonic()
    result = api.train(federation, W, FedAvg(rounds=5, lr=0.1), measure_every=0)
    assert time.monotonic() - began < 30.0  # not even one of the five rounds waits for the slowest
    assert all(set(r["missing"]) == {"c5"} for r in result.rounds)
    assert any("did not answer within" in r["missing"]["c5"] for r in result.rounds)
    assert any("was not asked: it has missed" in r["missing"]["c5"] for r in result.rounds)


def test_a_client_to_be_forgotten_is_always_waited_for() -> None:
    grid = slow_grid()
    federation = federation_of(grid, timeout=5.0, patience=5.0, wait_for=0.5, essential=("c5",))
    grid.seconds = 0.4
    assert federation.train(W, IDS, CE, Local(0.1)).missing == {}


def test_a_deadline_adapts_to_what_is_usual() -> None:
    times = Punctuality(600.0)
    every = dict.fromkeys(IDS, "train")
    assert times.deadline(every) == 600.0
    for _ in range(punctuality.KNOWN):
        for k, i in enumerate(IDS):
            times.heard(i, "train", 10.0 + k)
    assert times.deadline(every) == pytest.approx(45.0)
    assert times.deadline({IDS[0]: "train"}) == pytest.approx(30.0)
    assert times.deadline(every | {IDS[0]: "query"}) == 600.0  # nothing is known of this kind
    assert Punctuality(20.0).deadline({}) == 20.0
    quick = Punctuality(600.0)
    for _ in range(punctuality.KNOWN):
        quick.heard("c0", "train", 0.01)
    assert quick.deadline({"c0": "train"}) == punctuality.FLOOR


def test_a_client_that_misses_many_rounds_is_asked_less_often() -> None:
    times = Punctuality(1.0)
    asked = []
    for round_ in range(60):
        if times.rested("c0", round_) is None:
            asked.append(round_)
            times.missed("c0")
    assert asked[:4] == [0, 1, 2, 3]
    gaps = [b - a for a, b in itertools.pairwise(asked[3:])]
    assert gaps == [4, 8, 16, 16]
    times.heard("c0", "train", 0.1)
    assert times.rested("c0", 60) is None
    assert times.rested("c0", 60) is None


# Versions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["1.41.0", "1.42.0", "1.57.1", None])
def test_versions_that_are_supported(found: str | None) -> None:
    compat.check_version(found)


@pytest.mark.parametrize("found", ["1.40.9", "0.19.0", "2.0.0", "nonsense"])
def test_versions_that_are_not(found: str) -> None:
    with pytest.raises(UserError, match=rf"Flower {found} is not supported: fupareto needs flwr>=1.41,<2"):
        compat.check_version(found)
