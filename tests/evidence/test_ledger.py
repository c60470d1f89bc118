"""The ledger: append-only, hash-chained; several requests answered together; what comes back is seen."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fupareto
from fupareto import answering
from fupareto.errors import UserError
from fupareto.evidence import Ledger, keys, verify
from fupareto.evidence.check import Against
from fupareto.report.ledger import index, letters

CLIENTS = tuple("abcdef")
TODAY = datetime.now(UTC).date()
TRAINING = fupareto.FedAvg(rounds=15, lr=0.5, batch_size=10)


def federation() -> fupareto.Federation:
    """Return clients whose labels are hard to tell, but for those of ``a``, who has a corner of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))

    def samples(client: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        y = torch.arange(60) % 3
        x = torch.randn(60, 5, generator=generator)
        x[:, 0] += 0.6 * y
        if client == "a":
            x = 0.1 * x
            x[:, 1 + 0] += 3
            x[torch.arange(60), 2 + (y + 1) % 3] += 3  # told by other features than everybody else's
        return x, y

    held = {i: (samples(i, ord(i)), samples(i, ord(i) + 99)) for i in CLIENTS}
    return fupareto.simulate(model, held, workers=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ledger")
    engine = federation()
    fupareto.train(engine, engine.fresh(1), TRAINING, out=place / "training", measure_every=0)
    return place / "training"


def asked(ledger: Ledger, *clients: str) -> int:
    return ledger.add(fupareto.Request(clients).to_json(), TODAY, TODAY + timedelta(days=30)).number


def test_together_and_what_comes_back(trained: Path, tmp_path: Path) -> None:
    engine, ledger = federation(), answering.begin(tmp_path / "ledger", trained)
    how = answering.with_federation(engine, "retrain", dormancy=0)
    numbers = [asked(ledger, "a"), asked(ledger, "b")]
    made = answering.answer(ledger, numbers, how)
    assert made["requests"] == [1, 2]
    assert [one.answer is not None for one in ledger.requests] == [True, True]
    against = Against(ledger=ledger.path, head=ledger.head)
    found = {f.about: f.level for f in verify(ledger.certificate_of(made), against=against)}
    assert (found["position"], found["requests"], found["head"]) == ("ok", "ok", "ok")
    letters.write(ledger, 1)
    assert "It was answered together with request 2." in (ledger.path / "letters/1-letter.html").read_text()
    back = answering.adopt(ledger, trained, how, "the old model, by mistake")  # it knows what was forgotten
    assert back["earlier"]["1,2"]["result"] in ("back", "unknown")
    single = Ledger.open(ledger.path)
    with pytest.raises(UserError, match="was forgotten already"):
        asked(single, "a")
    third = answering.answer(ledger, [asked(ledger, "c")], answering.with_federation(engine, "retrain", dormancy=0))
    assert third["earlier"]["1,2"]["result"] == "held"
    assert json.loads((ledger.path / "runs/3/request.json").read_text())["left"] == ["a", "b"]


def test_further_training_that_brings_a_client_back_is_seen(trained: Path, tmp_path: Path) -> None:
    engine, ledger = federation(), answering.begin(tmp_path / "ledger", trained)
    how = answering.with_federation(engine, "retrain", dormancy=0)
    answering.answer(ledger, [asked(ledger, "a")], how)
    now = answering.adopt(ledger, trained, how)["earlier"]["1"]
    then = now["then"]["forget_acc"]
    assert (now["result"], now["forget_acc"] > then + 0.3) == ("back", True)
    assert "has come back" in index.render(ledger, TODAY)
    assert index.render(ledger, TODAY).count("in force") == 1


def test_what_is_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no ledger; begin one"):
        Ledger.open(tmp_path)
    ledger = answering.begin(tmp_path / "ledger", trained)
    with pytest.raises(UserError, match="already has a ledger"):
        answering.begin(tmp_path / "ledger", trained)
    with pytest.raises(UserError, match="no client 'z'"):
        asked(ledger, "z")
    with pytest.raises(UserError, match="in the future"):
        ledger.add({"clients": ["a"]}, TODAY + timedelta(days=9), TODAY + timedelta(days=30))
    with pytest.raises(UserError, match="before the day on which"):
        ledger.add({"clients": ["a"]}, TODAY, TODAY - timedelta(days=1))
    with pytest.raises(UserError, match="there is no request 1"):
        ledger.request(1)
    how = answering.with_federation(federation())
    with pytest.raises(UserError, match="name the requests"):
        answering.answer(ledger, [], how)
    asked(ledger, "a")
    ledger.add({"clients": [], "samples": {"b": [1]}}, TODAY, TODAY)
    with pytest.raises(UserError, match="answer requests of one kind together"):
        answering.answer(ledger, [1, 2], how)
    with pytest.raises(UserError, match="is not answered yet"):
        letters.write(ledger, 1)
    assert [one.days_left(date.fromisoformat(one.entry["deadline"])) for one in ledger.requests] == [0, 0]


@pytest.fixture(scope="module")
def written(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, keys.Trusted]:
    place = tmp_path_factory.mktemp("written")
    keys.make("operator", place)
    signer = keys.signer(place / "operator.key")
    ledger = answering.begin(place / "ledger", trained, signer)
    for client in "abc":
        ledger.add({"clients": [client]}, TODAY, TODAY, signer)
    return place / "ledger", keys.trusted(place / "operator.pub")


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_changed_byte_is_noticed(written: tuple[Path, keys.Trusted], tmp_path: Path, data: st.DataObject) -> None:
    """By the links or, in the newest entry, by its signature."""
    place, trusted = written
    whole = (place / "ledger.jsonl").read_bytes()
    at = data.draw(st.integers(0, len(whole) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != whole[at]))
    (tmp_path / "ledger.jsonl").write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
    changed = Ledger(tmp_path)
    if changed.flaw() is not None:
        return
    try:
        signed = [trusted.signer(*entry.signed()) for entry in changed.entries]  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError, KeyError):
        return
    bare = [{k: v for k, v in one.entries[-1].content.items() if k != "signature"} for one in (changed, Ledger(place))]
    assert bare[0] == bare[1] or None in signed  # another way to write the same signature changes nothing
