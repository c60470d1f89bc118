"""Checks of a request before it enters a ledger and before it is answered.

A ledger is append-only, so a request that can never be answered is refused at the door. Requests are in the format of
request.json.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence.entries import Asked

Request = Mapping[str, Any]  # content of request.json


def covered(asked: Request, by: Sequence[Request]) -> bool:
    """Return whether a model that was made without ``by`` does not carry a request."""
    clients = {str(c) for one in by if not one.get("samples") for c in one.get("clients", ())}
    if asked.get("samples"):
        without = {(i, r) for one in by for i, rows in one.get("samples", {}).items() for r in rows}
        return all(i in clients or (i, r) in without for i, rows in asked["samples"].items() for r in rows)
    if asked.get("classes"):
        return set(asked["classes"]) <= {c for one in by for c in one.get("classes", ())}
    return set(map(str, asked.get("clients", ()))) <= clients


def check(request: Request, clients: Sequence[str], earlier: Sequence[Asked], left: Request) -> None:
    """Refuse a request that makes no sense, or that asks for what an earlier one has asked for.

    Whether the clients have the rows and classes that it names is not known here: that takes their data.

    Args:
        request: What is to be forgotten.
        clients: Clients of the federation.
        earlier: All requests of the ledger.
        left: Request that was answered before the ledger was opened; empty if there was none.
    """
    _check_lists(request)
    gone = (*left.get("clients", ()), *left.get("left", ()))
    standing = [one for one in earlier if one.withdrawal is None]
    for client in (*request.get("clients", ()), *request.get("samples", {})):
        if client not in clients:
            raise UserError(f"no client {client!r} in the federation; it has {', '.join(clients)}")
        if client in gone:
            raise UserError(f"client {client!r} was forgotten before the ledger was opened; leave it out")
        for one in standing:
            if client in one.entry["request"].get("clients", ()):
                raise UserError(_taken(f"client {client!r}", one))
    forgotten = [one.entry["request"] for one in standing if one.answer]
    if request.get("clients") and covered({"clients": clients}, [request, {"clients": gone}, *forgotten]):
        raise UserError(
            "the request forgets everything: no retained client is left; leave at least one client out of the request, "
            "or delete the model instead"
        )
    if same := _same(request, standing):
        raise UserError(f"all that is to be forgotten is part of {_numbers(same)} already; see: fupareto requests list")


def check_answerable(asked: Asked, earlier: Sequence[Asked]) -> None:
    """Refuse to answer a request for what the answer to an earlier one has forgotten.

    Args:
        asked: The request.
        earlier: All requests of the ledger.
    """
    answered = [one for one in earlier if one.answer]
    request = asked.entry["request"]
    withdraw = f"fupareto requests withdraw {asked.number} --reason"
    for client in request.get("clients", ()):
        for one in answered:
            if client in one.entry["request"].get("clients", ()):
                others = [i for i in request["clients"] if i != client]
                anew = f", and add one for {', '.join(others)} alone" if others else ""
                raise UserError(
                    f"request {asked.number}: client {client} was forgotten by request {one.number}; withdraw this "
                    f"one{anew}: {withdraw} 'forgotten by request {one.number}'"
                )
    if same := _same(request, answered):
        raise UserError(
            f"request {asked.number}: all that it names was forgotten by {_numbers(same)}; withdraw this one: "
            f"{withdraw} 'forgotten by {_numbers(same)}'"
        )


def _check_lists(request: Request) -> None:
    """Refuse a request that names nothing, or something twice."""
    if not any(request.get(kind) for kind in ("clients", "samples", "classes")):
        raise UserError("the request names nothing to forget; name clients, samples or classes")
    for client, rows in request.get("samples", {}).items():
        if not rows:
            raise UserError(f"the request names no row of client {client!r}; name rows, or leave the client out")
        if wrong := [row for row in rows if row < 0]:
            raise UserError(f"rows of samples are numbered from 0 on; there is no row {wrong[0]}")
        if twice := _twice(rows):
            raise UserError(f"the request names row {twice[0]} of client {client!r} twice; name every row once")
    for kind, word in (("clients", "client"), ("classes", "class")):
        if twice := _twice(request.get(kind, ())):
            raise UserError(f"the request names {word} {twice[0]!r} twice; name every {word} once")


def _twice(names: Sequence[Any]) -> list[Any]:
    return [name for name, count in Counter(names).items() if count > 1]


def _same(request: Request, others: Sequence[Asked]) -> list[Asked]:
    """Return the requests that together name all samples or classes of a request; none for one for clients."""
    asked = [one.entry["request"] for one in others]
    if request.get("clients") or not covered(request, asked):
        return []
    parts: list[Request] = [{"samples": {i: [r]}} for i, rows in request.get("samples", {}).items() for r in rows]
    parts += [{"classes": [c]} for c in request.get("classes", ())]
    return [one for one, named in zip(others, asked, strict=True) if any(covered(part, [named]) for part in parts)]


def _numbers(requests: Sequence[Asked]) -> str:
    numbers = [str(one.number) for one in requests]
    return f"request{'' if len(numbers) == 1 else 's'} {', '.join(numbers)}"


def _taken(what: str, by: Asked) -> str:
    if by.answer:
        return f"{what} was forgotten already, by request {by.number}; see: fupareto requests show {by.number}"
    return (
        f"{what} is to be forgotten by request {by.number} already, which is open; to replace that one, withdraw it "
        f"first: fupareto requests withdraw {by.number} --reason …"
    )
