"""The ledger: append-only, hash-chained; several requests answered together; what comes back is seen."""

import contextlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import partial
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
from fupareto.methods.renew import Renew
from fupareto.report.ledger import index, letters
from fupareto.report.ledger.words import state

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


@pytest.mark.parametrize(
    ("remains", "words"), [(0.0, "The model was trained anew"), (0.4, "The method is approximate")]
)
def test_a_letter_says_whether_the_model_was_trained_anew(
    remains: float, words: str, trained: Path, tmp_path: Path
) -> None:
    engine, ledger = federation(), answering.begin(tmp_path / "ledger", trained)
    method = Renew(remains=remains, training=TRAINING)
    answering.answer(ledger, [asked(ledger, "a")], answering.with_federation(engine, method, dormancy=0))
    letters.write(ledger, 1)
    assert words in (ledger.path / "letters/1-record.html").read_text()


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


def test_what_was_forgotten_before_the_ledger_was_opened_stays_out(trained: Path, tmp_path: Path) -> None:
    """A ledger may begin with an unlearning: its forgotten clients are no retained clients of later answers."""
    engine = federation()
    fupareto.unlearn(engine, trained, ["a"], "retrain", out=tmp_path / "earlier", measure_every=0)
    ledger = answering.begin(tmp_path / "ledger", tmp_path / "earlier")
    with pytest.raises(UserError, match="client 'a' was forgotten before the ledger was opened"):
        asked(ledger, "a")
    made = answering.answer(ledger, [asked(ledger, "b")], answering.with_federation(engine, "retrain", dormancy=0))
    place = ledger.run_of(made)
    assert json.loads((place / "request.json").read_text())["left"] == ["a"]
    measured = json.loads((place / "summary.json").read_text())["stages"]["unlearned"]["clients"]
    assert set(measured) == set(CLIENTS) - {"a"}


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
    for mistyped in (date(1066, 10, 14), TODAY - timedelta(days=4000)):
        with pytest.raises(UserError, match="more than ten years"):
            ledger.add({"clients": ["a"]}, mistyped, mistyped)
    with pytest.raises(UserError, match="more than ten years"):
        ledger.add({"clients": ["a"]}, TODAY, TODAY + timedelta(days=9999))
    with pytest.raises(UserError, match="names nothing to forget"):
        ledger.add({"clients": []}, TODAY, TODAY)
    with pytest.raises(UserError, match="there is no row -1"):
        ledger.add({"clients": [], "samples": {"b": [3, -1]}}, TODAY, TODAY)
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


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"clients": [], "samples": {"b": []}}, "names no row of client 'b'"),
        ({"clients": [], "samples": {"b": [3], "c": []}}, "names no row of client 'c'"),
        ({"clients": [], "samples": {"b": [1, 1]}}, "names row 1 of client 'b' twice"),
        ({"clients": ["b", "b"]}, "names client 'b' twice"),
        ({"clients": [], "classes": [2, 2]}, "names class 2 twice"),
        ({"clients": ["a"]}, "client 'a' is to be forgotten by request 1 already, which is open"),
        ({"clients": ["b", "a"]}, "client 'a' is to be forgotten by request 1 already"),
        ({"clients": [], "samples": {"a": [1]}}, "client 'a' is to be forgotten by request 1 already"),
        ({"clients": [], "samples": {"f": [2]}}, "is part of request 2 already"),
        ({"clients": [], "samples": {"f": [2], "e": [4]}}, "is part of requests 2, 3 already"),
        ({"clients": [], "classes": [1]}, "is part of request 4 already"),
        ({"clients": list(CLIENTS[1:])}, "forgets everything"),
    ],
)
def test_requests_that_could_never_be_answered(
    trained: Path, tmp_path: Path, request_: dict[str, object], why: str
) -> None:
    """A ledger is append-only, and takes only what can be answered."""
    ledger = answering.begin(tmp_path / "ledger", trained)
    asked(ledger, "a")
    for parts in ({"samples": {"f": [2, 3]}}, {"samples": {"e": [4]}}, {"classes": [1, 2]}):
        ledger.add({"clients": [], **parts}, TODAY, TODAY)
    if "everything" in why:
        facts = dict.fromkeys(("run", "certificate", "weights", "status", "verdict"), "x")
        ledger._append("answer", lambda: {**facts, "requests": [1]}, None)
    before = (ledger.path / "ledger.jsonl").read_bytes()
    with pytest.raises(UserError, match=why):
        ledger.add(request_, TODAY, TODAY)
    assert (ledger.path / "ledger.jsonl").read_bytes() == before


def test_requests_that_share_a_part_are_accepted(trained: Path, tmp_path: Path) -> None:
    """More rows, more classes, or the whole client after a few of its rows: something is left to forget."""
    ledger = answering.begin(tmp_path / "ledger", trained)
    for parts in ({"samples": {"b": [1]}}, {"samples": {"b": [1, 2]}}, {"classes": [1]}, {"classes": [1, 2]}):
        ledger.add({"clients": [], **parts}, TODAY, TODAY)
    asked(ledger, "b")
    ledger.withdraw(5, "a mistake")
    asked(ledger, "b")
    assert len(ledger.requests) == 6


def test_what_was_forgotten_meanwhile_is_to_be_withdrawn(trained: Path, tmp_path: Path) -> None:
    """An open request for what another answer has forgotten: of a ledger of an earlier version, or for its rows."""
    ledger, how = answering.begin(tmp_path / "ledger", trained), answering.with_federation(federation(), "retrain")
    ledger.add({"clients": [], "samples": {"a": [1]}}, TODAY, TODAY)
    asked(ledger, "a")
    dates = {"received": TODAY.isoformat(), "deadline": TODAY.isoformat()}
    for number, clients in ((3, ["a"]), (4, ["b", "a"])):
        content = {**dates, "number": number, "request": {"clients": clients}}
        ledger._append("request", lambda content=content: content, None)  # type: ignore[misc]
    facts = dict.fromkeys(("run", "certificate", "weights", "status", "verdict"), "x")
    ledger._append("answer", lambda: {**facts, "requests": [2]}, None)
    for number, says in (
        (1, "request 1: all that it names was forgotten by request 2; withdraw this one: fupareto requests withdraw 1"),
        (3, "request 3: client a was forgotten by request 2; withdraw this one: fupareto requests withdraw 3"),
        (4, "client a was forgotten by request 2; withdraw this one, and add one for b alone: fupareto"),
    ):
        with pytest.raises(UserError, match=says):
            answering.answer(ledger, [number], how)
        ledger.withdraw(number, "forgotten by request 2")
    assert not any(one.open for one in ledger.requests)


def test_a_request_is_withdrawn_with_a_reason(trained: Path, tmp_path: Path) -> None:
    ledger, how = answering.begin(tmp_path / "ledger", trained), answering.with_federation(federation(), "retrain")
    asked(ledger, "a"), asked(ledger, "b")
    with pytest.raises(UserError, match="say why"):
        ledger.withdraw(2, " ")
    with pytest.raises(UserError, match="there is no request 4"):
        ledger.withdraw(4, "a mistake")
    before = ledger.head
    gone = ledger.withdraw(2, "entered twice")
    assert asked(ledger, "b") == 3  # corrected: withdrawn, and added anew
    assert (gone.open, state(gone, TODAY)) == (False, f"withdrawn on {TODAY}")
    assert before in [entry.sha256 for entry in ledger.entries]  # nothing was taken away
    assert [one.number for one in ledger.requests if one.open] == [1, 3]
    twice: list[Callable[[], object]] = [
        partial(ledger.withdraw, 2, "again"),
        partial(answering.answer, ledger, [1, 2], how),
    ]
    for refused in twice:
        with pytest.raises(UserError, match="request 2 is withdrawn"):
            refused()
    with pytest.raises(UserError, match="was withdrawn"):
        letters.write(ledger, 2)
    page = index.render(ledger, TODAY)
    assert "3 requests, 6 clients: 2 open, 0 answered, 1 withdrawn" in page
    assert "entered twice" in page
    assert ledger.in_force.kind == "opened"
    made = answering.answer(ledger, [1], how)
    with pytest.raises(UserError, match="request 1 is answered already"):
        ledger.withdraw(1, "too late")
    found = verify(ledger.certificate_of(made), against=Against(ledger=ledger.path))
    assert [f.text for f in found if f.about == "withdrawn"] == [f"Request 2 was withdrawn on {TODAY}: entered twice."]


def test_a_signed_ledger_stays_signed_by_operators(trained: Path, tmp_path: Path) -> None:
    """An entry cannot be taken back, so one that would fail every verification is not written."""
    for name in ("operator", "deputy", "client-a"):
        keys.make(name, tmp_path)
    operator, deputy, client = (keys.signer(tmp_path / f"{name}.key") for name in ("operator", "deputy", "client-a"))
    with pytest.raises(UserError, match="is that of a client"):
        answering.begin(tmp_path / "ledger", trained, client)
    ledger = answering.begin(tmp_path / "ledger", trained, operator)
    dates = TODAY, TODAY + timedelta(days=30)
    ledger.add({"clients": ["a"]}, *dates, deputy)
    before = (ledger.path / "ledger.jsonl").read_bytes()
    for signer, why in ((None, "are signed; name the key"), (client, "is that of a client")):
        how = answering.with_federation(federation(), "retrain", signer)
        attempts: list[Callable[[], object]] = [
            partial(ledger.add, {"clients": ["b"]}, *dates, signer),
            partial(ledger.withdraw, 1, "a mistake", signer),
            partial(answering.answer, ledger, [1], how),
            partial(answering.adopt, ledger, trained, how),
        ]
        for refused in attempts:
            with pytest.raises(UserError, match=why):
                refused()
    assert (ledger.path / "ledger.jsonl").read_bytes() == before
    assert not (ledger.path / "runs").exists()


@pytest.mark.parametrize(
    "cut", ["answering.remeasured", "answering.certify", "evidence.issue.sign", "evidence.ledger.put"]
)
def test_an_answer_that_was_killed_is_continued(
    trained: Path, tmp_path: Path, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.make("operator", tmp_path)
    signer = keys.signer(tmp_path / "operator.key")
    ledger = answering.begin(tmp_path / "ledger", trained, signer)
    how = answering.with_federation(federation(), "retrain", signer, dormancy=0)
    ledger.add({"clients": ["a"]}, TODAY, TODAY, signer)
    before = ledger.head

    def killed(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"fupareto.{cut}", killed)
        with pytest.raises(KeyboardInterrupt):
            answering.answer(ledger, [1], how)
    assert ledger.head == before
    made = answering.answer(ledger, [1], how)
    against = Against(trusted=keys.trusted(tmp_path / "operator.pub"), ledger=ledger.path, head=ledger.head)
    found = verify(ledger.certificate_of(made), against=against)
    assert [f.text for f in found if f.level == "failed"] == []
    assert any(f.text == "Signed by operator." for f in found)
    assert len(ledger.answers) == 1


def test_a_ledger_without_its_last_newline_is_continued(trained: Path, tmp_path: Path) -> None:
    ledger = answering.begin(tmp_path / "ledger", trained)
    asked(ledger, "a")
    path = ledger.path / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    asked(ledger, "b")
    assert ledger.flaw() is None
    assert path.read_bytes().count(b"\n") == 3
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="entry 3 is cut off or damaged"):
        Ledger.open(ledger.path)


@pytest.mark.parametrize("numbers", [[7], [1, 1], [2], [[1]], "1", [True]])
def test_entries_about_requests_that_are_not_open_are_a_flaw(trained: Path, tmp_path: Path, numbers: object) -> None:
    ledger = answering.begin(tmp_path / "ledger", trained)
    asked(ledger, "a"), asked(ledger, "b")
    ledger.withdraw(2, "a mistake")
    if numbers == [1, 1]:
        ledger._append("withdrawal", lambda: {"number": 1, "reason": "a mistake"}, None)
    facts = dict.fromkeys(("run", "certificate", "weights", "status", "verdict"), "x")
    ledger._append("answer", lambda: {**facts, "requests": numbers}, None)
    assert "is about a request that does not exist" in (ledger.flaw() or "")


def test_two_at_once(trained: Path, tmp_path: Path) -> None:
    """Requests that are added at once get numbers of their own, none is added twice; answers wait for each other."""
    ledger = answering.begin(tmp_path / "ledger", trained)

    def add(row: int) -> None:
        with contextlib.suppress(UserError):  # every row is asked for by two of them
            Ledger(ledger.path).add({"clients": [], "samples": {"a": [row // 2]}}, TODAY, TODAY)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    assert ledger.flaw() is None
    assert [one.number for one in ledger.requests] == list(range(1, 13))
    assert {one.entry["request"]["samples"]["a"][0] for one in ledger.requests} == set(range(12))
    how = answering.with_federation(federation(), "retrain")
    with ledger.exclusive():
        attempts: list[Callable[[], object]] = [
            partial(answering.answer, Ledger(ledger.path), [1], how),
            partial(answering.adopt, Ledger(ledger.path), trained, how),
            partial(Ledger(ledger.path).withdraw, 2, "a mistake"),
        ]
        for refused in attempts:
            with pytest.raises(UserError, match="another process is changing"):
                refused()
    assert not (ledger.path / "runs").exists()


def test_an_answer_begun_from_another_model_is_not_continued(trained: Path, tmp_path: Path) -> None:
    engine, ledger = federation(), answering.begin(tmp_path / "ledger", trained)
    how = answering.with_federation(engine, "retrain", dormancy=0)
    asked(ledger, "a"), asked(ledger, "b")
    fupareto.unlearn(engine, trained, ["b"], "retrain", out=ledger.path / "runs/2")  # begun, and cut off
    answering.answer(ledger, [1], how)
    with pytest.raises(UserError, match="begun from another model than the one that is in force"):
        answering.answer(ledger, [2], how)


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
