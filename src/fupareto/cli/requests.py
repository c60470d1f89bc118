"""The commands of fupareto requests: the ledger of a federation's erasure requests."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fupareto import parse
from fupareto.cli import dates
from fupareto.cli.common import (
    Classes,
    Clients,
    FailOn,
    Json,
    Key,
    Quiet,
    Root,
    Samples,
    fail,
    progress,
    report,
    requested,
    say,
)
from fupareto.errors import UserError

if TYPE_CHECKING:
    from fupareto.evidence import Ledger
    from fupareto.evidence.entries import Asked
    from fupareto.federation import Request

At = Annotated[Path, typer.Option("--ledger", envvar="FUPARETO_LEDGER", help="Directory of the ledger.")]
PLACE = Path("ledger")


def open_(
    run: Annotated[Path, typer.Argument(help="Finished run whose model is in use now.")],
    ledger: At = PLACE,
    key: Key = None,
) -> None:
    """Begin the ledger of a federation."""
    from fupareto import answering, evidence

    made = answering.begin(ledger, run, evidence.signer(key) if key else None)
    _index(made)
    clients = made.federation["clients"]
    typer.echo(f"Ledger: {ledger} for {len(clients)} clients: {', '.join(clients)}\nHead: {made.head}")


def add(
    clients: Clients = None,
    samples: Samples = None,
    classes: Classes = None,
    received: Annotated[str | None, typer.Option(help="Day of arrival, e.g. 2026-11-02.", show_default="today")] = None,
    deadline: Annotated[str, typer.Option(help="Days after arrival, or a date: 30d or 2026-12-02.")] = "30d",
    reference: Annotated[str, typer.Option(help="Case number, for the letter and the record.")] = "",
    gone: Annotated[bool, typer.Option("--gone", help="The clients can no longer be reached.")] = False,
    ledger: At = PLACE,
    key: Key = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Add a request that has arrived; one that could never be answered is refused."""
    from fupareto import evidence

    book = evidence.Ledger.open(ledger)
    request = requested(clients, samples, classes)
    if request is None:
        raise UserError("name what is to be forgotten: --clients, --samples or --classes")
    if gone and request.classes:
        raise UserError("--gone is for requests that name clients, or samples of clients; leave it out, or name them")
    arrived = dates.day(received, "--received") if received else dates.today()
    who = [*request.clients, *request.samples] if gone else []
    more = {**({"reference": reference} if reference else {}), **({"gone": who} if who else {})}
    signer = evidence.signer(key) if key else None
    due = dates.deadline(deadline, arrived)
    book.check(request.to_json())
    if request.partial:
        _check_data(book, request, root)
    asked = book.add(request.to_json(), arrived, due, signer, **more)
    _index(book)
    if as_json:
        typer.echo(json.dumps(asked.entry.content, indent=2))
        return
    typer.echo(f"Request {asked.number}: {_what(asked)}, to be answered by {asked.entry['deadline']}")
    typer.echo(f"Answer it with: fupareto requests answer {asked.number} --ledger {ledger}\nHead: {book.head}")


def list_(ledger: At = PLACE, as_json: Json = False) -> None:
    """List all requests: open ones with the days left, answered ones with the tally of their checks."""
    from fupareto import evidence
    from fupareto.report.sheet import Sheet, to_rich
    from fupareto.report.terminal import show as print_table

    book = evidence.Ledger.open(ledger)
    if as_json:
        typer.echo(json.dumps([_facts(asked) for asked in book.requests], indent=2))
        return
    rows = [[str(a.number), _what(a), str(a.entry["received"]), _state(a), _verdict(a)] for a in book.requests]
    columns = [("", head) for head in ("no.", "to be forgotten", "received", "state", "checks")]
    print_table(to_rich(Sheet(f"Requests of {ledger}", columns, 5, rows)))
    typer.echo(f"Head: {book.head}")


def show(
    number: Annotated[int, typer.Argument(help="Number of the request.")], ledger: At = PLACE, as_json: Json = False
) -> None:
    """Show one request, its answer, and what was measured of it on later models."""
    from fupareto import evidence
    from fupareto.report.ledger import words

    book = evidence.Ledger.open(ledger)
    asked = book.request(number)
    later = words.later(book, number)
    if as_json:
        typer.echo(json.dumps({**_facts(asked), "later": later}, indent=2))
        return
    entry = asked.entry
    typer.echo(f"Request {number}: {_what(asked)}")
    typer.echo(f"Received {entry['received']}, to be answered by {entry['deadline']}: {_state(asked)}")
    if asked.answer is not None:
        typer.echo(f"{asked.answer['verdict']}\nCertificate: {book.certificate_of(asked.answer)}")
    if asked.withdrawal is not None:
        typer.echo(f"Reason: {asked.withdrawal['reason']}")
    for what, text in later.items():
        typer.echo(f"On the model of {what}: {text}")
    typer.echo(f"Entry: {entry.sha256}")


def withdraw(
    number: Annotated[int, typer.Argument(help="Number of an open request.")],
    reason: Annotated[str, typer.Option(help="Why it is not to be answered, e.g. 'entered twice, see request 4'.")],
    ledger: At = PLACE,
    key: Key = None,
) -> None:
    """Withdraw an open request, which stays in the ledger with the reason; to correct one, then add it anew."""
    from fupareto import evidence

    book = evidence.Ledger.open(ledger)
    asked = book.withdraw(number, reason, evidence.signer(key) if key else None)
    _index(book)
    typer.echo(f"Request {number}: {_what(asked)}, {_state(asked)}\nHead: {book.head}")


def answer(
    numbers: Annotated[
        list[int] | None, typer.Argument(help="Numbers of the requests.", show_default="all open")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Unlearning method.", show_default="the experiment's")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Option of the method, e.g. --set lr=0.01 (repeatable).")
    ] = None,
    retrain: Annotated[
        int,
        typer.Option(min=0, max=2, help="Compare with so many retrained models (1 if no number follows)."),
    ] = 0,
    dormancy: Annotated[
        int | None, typer.Option(min=0, help="Rounds of further training in the audit; 0: none.")
    ] = None,
    ledger: At = PLACE,
    key: Key = None,
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
    fail_on: FailOn = None,
) -> None:
    """Answer requests: unlearn from the model in force, audit, certify, append, and write letter and record."""
    from fupareto import answering, evidence, experiment
    from fupareto.run.directory import Run

    book = evidence.Ledger.open(ledger)
    open_requests = [asked.number for asked in book.requests if asked.open]
    if not numbers and not open_requests:
        raise UserError(f"{ledger} has no open request; add one with: fupareto requests add")
    extent = {"retrain": retrain or None, "dormancy": dormancy}
    how = experiment.how(
        book,
        method=method,
        options=parse.nested(set_ or []),
        signer=evidence.signer(key) if key else None,
        host=experiment.Host(root, progress=progress(quiet)),
        **{name: value for name, value in extent.items() if value is not None},
    )
    made = answering.answer(book, numbers or open_requests, how)
    run = Run.open(book.run_of(made))
    report(run)
    papers = [path for number in made["requests"] for path in _papers(book, number)]
    _index(book)
    if as_json:
        typer.echo(json.dumps(made.content, indent=2))
    else:
        typer.echo(made["verdict"])
        for number, found in (made["earlier"] or {}).items():
            typer.echo(f"Request {number}, forgotten earlier: {found['text']}")
        typer.echo(f"Certificate: {book.certificate_of(made)}")
        for path in papers:
            typer.echo(f"Written: {path}")
        typer.echo(f"Index: {ledger / 'index.html'}\nHead: {book.head}")
    fail(made["checks"], fail_on)


def adopt(
    model: Annotated[
        Path, typer.Argument(help="Finished run, or .safetensors file, whose model is in use from now on.")
    ],
    note: Annotated[str, typer.Option(help="Where the model comes from, e.g. 'trained on in December'.")] = "",
    ledger: At = PLACE,
    key: Key = None,
    root: Root = None,
) -> None:
    """Record that another model is in use, such as one trained further, and measure what was forgotten earlier."""
    from fupareto import answering, evidence, experiment

    book = evidence.Ledger.open(ledger)
    how = experiment.how(book, signer=evidence.signer(key) if key else None, host=experiment.Host(root))
    made = answering.adopt(book, model, how, note)
    _index(book)
    for number, found in made["earlier"].items():
        typer.echo(f"Request {number}, forgotten earlier: {found['text']}")
    typer.echo(f"In use from now on: {model}\nHead: {book.head}")


def letter(
    number: Annotated[int, typer.Argument(help="Number of an answered request.")],
    templates: Annotated[
        Path | None, typer.Option(help="Directory with letter.html and record.html.", show_default="in the ledger")
    ] = None,
    ledger: At = PLACE,
) -> None:
    """Write the letter to the requester and the record for the file again, from your own templates if you like."""
    from fupareto import evidence

    for path in _papers(evidence.Ledger.open(ledger), number, templates):
        typer.echo(f"Written: {path}")


def _check_data(book: "Ledger", request: "Request", root: Path | None) -> None:
    """Refuse rows and classes that the clients do not have, where their data can be had."""
    from fupareto import answering, experiment
    from fupareto.run.directory import Run

    try:
        place = Run.open(book.run_of(book.entries[0]))
        clients, _ = experiment.federation(experiment.stored_experiment(place), root=root)
        earlier = answering.forgotten(book)
    except UserError as error:
        say(False, f"Whether the clients have these data was not checked: {error}")
        return
    asked = request.after(earlier)
    asked.sides(clients.divided(asked).ids)


# Words and files ----------------------------------------------------------------------------------------------------


def _papers(book: "Ledger", number: int, templates: Path | None = None) -> list[Path]:
    from fupareto.report.ledger import letters

    return letters.write(book, number, templates)


def _index(book: "Ledger") -> None:
    from fupareto.report.ledger import index

    index.write(book)


def _what(asked: "Asked") -> str:
    from fupareto.report.ledger.words import what

    return what(asked.entry["request"])


def _state(asked: "Asked") -> str:
    from fupareto.report.ledger.words import state

    return state(asked, dates.today())


def _verdict(asked: "Asked") -> str:
    from fupareto.tally import words

    return words(asked.answer["checks"]) if asked.answer is not None else ""


def _facts(asked: "Asked") -> dict[str, Any]:
    return {
        **asked.entry.content,
        "sha256": asked.entry.sha256,
        "days_left": asked.days_left(dates.today()) if asked.open else None,
        "answer": None if asked.answer is None else asked.answer.content,
        "withdrawal": None if asked.withdrawal is None else asked.withdrawal.content,
    }
