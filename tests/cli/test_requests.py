"""Requests from the command line: none is dropped, and none enters the ledger that could never be answered."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .commands import Ended

Call = Callable[..., Ended]
Mistake = Callable[..., str]
FEW = ("--set", "rounds=1", "--set", "recovery_rounds=0", "--quiet")


@pytest.fixture
def ledger(call: Call, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ledger of a federation of five clients on 400 digits, in the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small / "trained", "trained")
    assert call("requests", "open", "trained").code == 0
    return tmp_path / "ledger"


def entries(ledger: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (ledger / "ledger.jsonl").read_text().splitlines()]


def test_several_clients_or_classes_are_one_request(call: Call, ledger: Path) -> None:
    """As if they were one list."""
    assert call("requests", "add", "--clients", "4", "--clients", "3,1").code == 0
    assert call("requests", "add", "--classes", "4", "--classes", "7").code == 0
    requests = [entry["request"] for entry in entries(ledger)[1:]]
    assert requests == [{"clients": ["4", "3", "1"]}, {"clients": [], "classes": [4, 7]}]


def test_several_clients_or_classes_are_unlearned(call: Call, small: Path, tmp_path: Path) -> None:
    for option, values, wanted in (("clients", ("2", "4"), ["2", "4"]), ("classes", ("4", "7,1"), [4, 7, 1])):
        args = [word for value in values for word in (f"--{option}", value)]
        ended = call("unlearn", small / "trained", "--out", tmp_path / option, *args, *FEW)
        assert ended.code == 0, ended.err
        assert json.loads((tmp_path / option / "request.json").read_text())[option] == wanted


def test_forget_clients_without_the_mark_are_named(
    call: Call, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For them the attack success rate is not measured, which nobody asked for who names other clients."""
    monkeypatch.setattr("fupareto.cli.common.report", lambda run: run.path / "report.html")
    marked = json.loads((small / "forgotten/summary.json").read_text())["forget"]
    other = next(i for i in "01234" if i not in marked)
    for number, (clients, loud) in enumerate(((marked, True), ([marked[0], other], True), ([other], False))):
        options = FEW[:-1] if loud else FEW
        ended = call(
            "unlearn", small / "trained", "--out", tmp_path / str(number), "--clients", ",".join(clients), *options
        )
        assert ended.code == 0, ended.err
        remarks = [line for line in ended.err.splitlines() if "measured without a mark" in line]
        assert [f"for client {other}:" in line for line in remarks] == [True] * (loud and other in clients)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--samples", "rows.json", "--samples", "more.json"), "--samples was given twice"),
        (("--clients", "1", "--clients", ""), "--clients was given 2 times, once without a value"),
        (("--clients", "1", "--deadline", "30d", "--deadline", "60d"), "--deadline was given twice"),
        (("--clients", "1", "--received", "2026-01-01", "--received=2026-01-02"), "--received was given twice"),
        (("--clients", "1", *3 * ("--reference", "case 12")), "--reference was given 3 times"),
        (("--clients", "1", "--ledger", "a", "--ledger", "ledger"), "--ledger was given twice"),
    ],
)
def test_no_value_is_dropped(mistake: Mistake, ledger: Path, args: tuple[str, ...], says: str) -> None:
    mistake("requests", "add", *args, says=(says,))


@pytest.mark.parametrize(
    "command",
    [
        ("unlearn", "trained", "--samples", "a.json", "--samples", "b.json", "--out", "run"),
        ("unlearn", "trained", "--out", "a", "--out", "b"),
        ("audit", "run", "--tier", "1", "--tier", "2"),
        ("audit", "run", "--retrain", "--retrain", "2"),
        ("attest", "run", "--client", "1", "--client", "2", "--key", "client-1.key"),
        ("certify", "run", "--previous", "a.json", "--previous", "b.json"),
        ("verify", "run", "--head", 64 * "a", "--head", 64 * "b"),
        ("requests", "withdraw", "1", "--reason", "a", "--reason", "b"),
        ("keys", "make", "operator", "--out", "a", "--out", "b"),
        ("data", "get", "cifar10", "--data", "a", "--data", "b"),
    ],
)
def test_no_command_drops_a_value(mistake: Mistake, command: tuple[str, ...]) -> None:
    mistake(*command, says=("was given twice; it takes one value, so give it once",))


def test_flags_and_lists_may_be_repeated(call: Call) -> None:
    assert call("methods", "--json", "--json").code == 0


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ('{"3": []}', ("names no row of client '3'",)),
        ('{"3": [1, 1]}', ("names row 1 of client '3' twice",)),
        ('{"3": [9999]}', ("client '3' has training samples 0 to", "names 9999")),
        ('{"3": [0], "1": [400]}', ("client '1' has training samples 0 to", "names 400")),
        ('{"3": [-1]}', ("there is no row -1",)),
        ('{"77": [0]}', ("no client '77' in the federation; it has 0, 1, 2, 3, 4",)),
    ],
)
def test_rows_that_no_client_has(mistake: Mistake, ledger: Path, rows: str, says: tuple[str, ...]) -> None:
    Path("rows.json").write_text(rows)
    mistake("requests", "add", "--samples", "rows.json", says=says)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--classes", "44"), ("no client has training samples of class 44",)),
        (("--classes", "0,1,2,3,4,5,6,7,8,9"), ("forgets everything",)),
        (("--classes", "4", "--gone"), ("--gone is for requests that name clients",)),
        (("--clients", "77"), ("no client '77'",)),
        (("--clients", "0,1,2,3,4"), ("forgets everything", "delete the model instead")),
        (("--clients", "1", "--deadline", "-5d"), ("2026-11-02 or a number of days such as 30d, not '-5d'",)),
        (("--clients", "1", "--received", "9999-12-31"), ("30d after 9999-12-31", "check --received")),
        (
            ("--clients", "1", "--received", "9999-12-31", "--deadline", "9999-12-31"),
            ("received on 9999-12-31, which is in the future",),
        ),
    ],
)
def test_requests_that_could_never_be_answered(
    mistake: Mistake, ledger: Path, args: tuple[str, ...], says: tuple[str, ...]
) -> None:
    mistake("requests", "add", *args, says=says)


def test_a_second_request_for_the_same_client(call: Call, mistake: Mistake, ledger: Path) -> None:
    assert call("requests", "add", "--clients", "3").code == 0
    says = "client '3' is to be forgotten by request 1 already, which is open"
    mistake("requests", "add", "--clients", "3", says=(says, "fupareto requests withdraw 1 --reason"))
    assert call("requests", "withdraw", "1", "--reason", "wrong date").code == 0
    assert call("requests", "add", "--clients", "3", "--deadline", "60d").code == 0


def test_rows_are_added_where_the_data_cannot_be_had(call: Call, ledger: Path) -> None:
    """A request that has arrived is recorded; that nobody looked is said."""
    shutil.move("trained", "elsewhere")
    Path("rows.json").write_text('{"3": [0, 17]}')
    ended = call("requests", "add", "--samples", "rows.json")
    assert ended.code == 0, ended.err
    assert "Whether the clients have these data was not checked: there is no run directory" in ended.err
    assert entries(ledger)[-1]["request"] == {"clients": [], "samples": {"3": [0, 17]}}


@pytest.mark.parametrize(
    ("options", "further", "retrained"),
    [((), True, False), (("--dormancy", "0"), False, False), (("--retrain",), True, True)],
)
def test_an_answer_is_audited_as_asked(
    call: Call,
    ledger: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    further: bool,
    retrained: bool,
) -> None:
    """Without further training if that is said, and with one retrained model where --retrain has no number."""
    monkeypatch.setattr("fupareto.cli.requests.report", lambda run: run.path / "report.html")
    monkeypatch.setattr("fupareto.result.DORMANCY", 1)  # so that further training is usual, and quick
    assert call("requests", "add", "--clients", "1").code == 0
    ended = call("requests", "answer", "1", *options, *FEW)
    assert ended.code == 0, ended.err
    audit = json.loads((ledger / "runs/1/audit.json").read_text())
    assert (audit["dormancy"] is not None, audit["truth"] is not None) == (further, retrained)
