"""Verification with the clients' data: measure again, compute rounds again, and ask clients for signed receipts.

The same for runs from experiment files, from Python and over Flower.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from fupareto import evidence, parse
from fupareto.errors import UserError
from fupareto.evidence import FAILED, NOT_CHECKED, OK, Against, Finding, reading, schema, signing
from fupareto.evidence.keys import Signer
from fupareto.federation import Federation
from fupareto.federation.questions import Attest, Attested, Question
from fupareto.federation.recording import WithHistory
from fupareto.federation.request import VIRTUAL
from fupareto.methods.registry import find, kind
from fupareto.result import Result
from fupareto.run import replay as replaying
from fupareto.run.directory import Run
from fupareto.run.start import history_of, trained_of, training_of

SIGNED = "signed"
LEVELS = {replaying.BITS: OK, replaying.CLOSE: OK, replaying.WRONG: FAILED, replaying.UNKNOWN: NOT_CHECKED}


def verify(
    run: str | Path,
    federation: Federation | None = None,
    *,
    replay: str = "",
    against: Against | None = None,
    tolerance: float = evidence.TOLERANCE,
) -> list[Finding]:
    """Check the certificate of a run from Python or over Flower; with its federation, measure and compute again.

    Args:
        run: The run directory, with its certificate.
        federation: The clients of the run, undivided; None checks files, chain and signatures only.
        replay: Rounds to compute again, such as "17,93", "all" (whose states are kept) or "every"; empty for none.
        against: Keys, a ledger and what else the verifier has.
        tolerance: Allowed difference of fractions.

    Returns:
        The findings; none of them has the level "failed" if all is well.
    """
    path, against = Path(run), against or Against()
    if federation is None:
        return evidence.verify(path / "certificate.json", tolerance=tolerance, against=against)
    result = Result.load(federation, path)
    held = evidence.load(path / "certificate.json")["audit"] or {}
    known = training_of(result.place) is not None  # else the model cannot be trained on
    rounds = (held.get("dormancy") or {}).get("rounds", 0) if known else 0
    again = result.remeasure(thresholds=held.get("thresholds"), dormancy=rounds)
    if replay:
        against = replace(against, replayed=replayed(Run.open(path), result.outcome.federation, replay))
    return evidence.verify(path / "certificate.json", again=again, tolerance=tolerance, against=against)


def replayed(place: Run, federation: Federation, rounds: str) -> list[Finding]:
    """Compute rounds of a run again, with its federation divided for its request, and return what was found.

    Args:
        place: The run.
        federation: Its clients.
        rounds: Numbers of rounds, separated by commas, ``all`` for those whose states are kept, or ``every``.
    """
    numbers: list[int] | None = None
    try:
        if rounds.strip() == "every":
            numbers = [record["round"] for record in place.rounds()]
        elif rounds.strip() != "all":
            numbers = [int(part) for part in parse.listed(rounds)]
    except ValueError as error:
        raise UserError(f"replay takes numbers of rounds, such as 17,93, all or every, not {rounds!r}") from error
    settings = dict(place.config["method"])
    name = settings.pop("name")
    if "method" in settings:  # a sequential run packs the states of its method
        return [Finding(NOT_CHECKED, "method", "A run that forgot clients one after the other is not replayable.")]
    trained = trained_of(place)
    history = None if trained is None else history_of(Run.open(trained))
    federation = federation if history is None else WithHistory(federation, history)
    found = replaying.replay(place, find(name, settings), federation, numbers)
    if not found:
        return [Finding(NOT_CHECKED, "method", "No round's state was kept, so none is replayable.")]
    other = _other_options(name, settings)
    doubt = f" Its options are not those of this version ({other}): another version may have made it." if other else ""
    return [
        Finding(
            LEVELS[one.result],
            f"round.{one.round}",
            f"Round {one.round}: {one.text}.{doubt if one.result == replaying.WRONG else ''}",
        )
        for one in found
    ]


def _other_options(name: str, stored: Mapping[str, Any]) -> str:
    """Return the options that either a run's configuration or the method of this version does not have."""
    known = {f.name: get_args(f.type) for f in fields(kind(name))}
    differing = known.keys() ^ stored.keys()
    return ", ".join(sorted(key for key in differing if NoneType not in known.get(key, ())))  # None is not stored


def receipts(
    result: Result, signers: Mapping[str, Signer] | None = None, clients: Sequence[str] = ()
) -> dict[str, str]:
    """Ask forget clients to measure the kept model on their own data, and add what they sign to the certificate.

    Args:
        result: A certified run, with its federation: ``Result.load(federation, run)``.
        signers: Keys by client, where clients do not sign themselves, as in a simulation.
        clients: Clients to ask; by default all forget clients.

    Returns:
        For each client that was asked, "signed", or why there is no receipt.
    """
    run = result.place.path
    if run is None:
        raise UserError("receipts need a run directory with a certificate; name one with out=")
    certificate, data = schema.read_certificate(run / "certificate.json")
    forget, w = result.outcome.sides[0], result.outcome.model(certificate["kept"]["stage"])
    if w is None:
        raise UserError(f"{run} has no {certificate['kept']['file']}")
    clients = [i if i in forget else f"{i}{VIRTUAL}" for i in clients]
    if unknown := [i.removesuffix(VIRTUAL) for i in clients if i not in forget]:
        raise UserError(f"{unknown[0]!r} is not a forget client of {run}; it has {', '.join(forget)}")
    questions: dict[str, Question] = {i: Attest(w, reading.sha256(data)) for i in clients or forget}
    answers, missing = result.outcome.federation.answers(questions)
    envelopes, found = [], dict(missing)
    for i, answer in answers.items():
        assert isinstance(answer, Attested)
        signed = json.loads(answer.envelope) if answer.envelope else None
        if signed is None and (signer := (signers or {}).get(i.removesuffix(VIRTUAL))) is not None:
            signed = signing.envelope(json.loads(answer.statement), signer)
        found[i] = "the client has no key" if signed is None else SIGNED
        envelopes += [] if signed is None else [signed]
    if envelopes:
        signing.add(run / "certificate.json", envelopes)
    return found
