"""Answers to requests of a ledger: unlearn, audit, measure earlier requests again, certify, and append.

The same for runs from experiment files, from Python and over Flower: what differs is in :class:`How`.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from torch import Tensor

from fupareto import api
from fupareto.audit.intervals import exact
from fupareto.audit.measure import measure
from fupareto.errors import UserError
from fupareto.evidence import Ledger, certify, models, reading, schema
from fupareto.evidence.entries import MODELS, Asked, Entry, combined
from fupareto.evidence.keys import Signer
from fupareto.federation import Federation, Request
from fupareto.federation.request import VIRTUAL
from fupareto.methods import Method
from fupareto.run.directory import Run
from fupareto.run.start import start_from

BACK = 0.05  # rise of the attack success rate, or of accuracy, up to which a forgotten request counts as held
RESTORED = "It has come back: the model is one that was in use before the request was answered."
RUNS = "runs"


@dataclass(frozen=True)
class How:
    """How requests of a federation are answered.

    Attributes:
        unlearn: Function of the model in force, the run directory to write, the request and the clients that are gone;
            it returns the run, finished and audited.
        federation: Function of a request and of the clients that are gone; it returns the federation, divided for the
            request.
        signer: Key of the operator.
    """

    unlearn: Callable[[Path, Path, Request, Sequence[str]], Run]
    federation: Callable[[Request, Sequence[str]], Federation]
    signer: Signer | None = None


def with_federation(
    federation: Federation, method: Method | str | None = None, signer: Signer | None = None, **audit: Any
) -> How:
    """Return how requests are answered with a federation from Python or over Flower.

    Args:
        federation: All clients.
        method: Unlearning method; by default FUPareto.
        signer: Key of the operator.
        **audit: Options of :meth:`Result.audit`, such as ``retrain``.
    """

    def unlearn(start: Path, out: Path, request: Request, gone: Sequence[str]) -> Run:
        result = api.unlearn(federation, start, request, method, out=out, resume=True)
        if result.place.audit is None:
            result.audit(**audit)
        return Run.open(out)

    return How(unlearn, lambda request, gone: federation.divided(request), signer)


def begin(path: Path, run: Path, signer: Signer | None = None) -> Ledger:
    """Begin the ledger of a federation with the model of a finished run.

    Args:
        path: Directory of the ledger.
        run: The run, a training or an unlearning.
        signer: Key of the operator.
    """
    return Ledger.create(path, run, _facts(Run.open(run)), signer)


def _facts(place: Run) -> dict[str, Any]:
    if not place.finished:
        raise UserError(f"{place.path} is not finished; continue it with --resume first")
    summary = place.summary
    weights = models.digests(place.path / f"{summary['final']}.safetensors")["weights"]
    return {"federation": schema.federation(summary, place.config), "weights": weights}


def answer(ledger: Ledger, numbers: Sequence[int], how: How) -> Entry:
    """Answer open requests together, from the model in force; an interrupted answer is continued.

    Args:
        ledger: The ledger.
        numbers: Numbers of the requests.
        how: How they are answered.

    Returns:
        The entry of the answer.
    """
    asked = ledger.open_requests(numbers)
    if not asked:
        raise UserError("name the requests to answer; see: fupareto requests list")
    ledger.check_signer(how.signer)  # before the work, not after it
    with ledger.exclusive():
        return _answered(ledger, asked, how)


def _answered(ledger: Ledger, asked: Sequence[Asked], how: How) -> Entry:
    request = Request.from_json(combined(asked)).after(forgotten(ledger))
    out = ledger.path / RUNS / "-".join(str(one.number) for one in asked)
    _check_begun(out, ledger.in_force)
    gone = [i for one in asked for i in one.gone]
    run = how.unlearn(ledger.run_of(ledger.in_force), out, request, gone)
    summary = run.summary
    if not (run.path / "certificate.json").exists():
        found = remeasured(ledger, run.path / f"{summary['final']}.safetensors", how)
        if found:
            run.save_earlier(found)
    before = ledger.answers
    previous = ledger.certificate_of(before[-1]) if before else None
    path = certify(run.path, previous=previous, signer=how.signer, requests=[_named(one) for one in asked])
    certificate, data = schema.read_certificate(path)
    facts = {
        "requests": [one.number for one in asked],
        "run": ledger.relative(run.path),
        "certificate": reading.sha256(data),
        "weights": certificate["kept"]["weights"],
        "status": certificate["status"],
        "verdict": certificate["verdict"],
        "checks": summary.get("checks"),
        "method": summary["method"],
        "earlier": certificate["earlier"],
    }
    return ledger.answer(facts, how.signer)


def _check_begun(out: Path, in_force: Entry) -> None:
    """Refuse to continue an answer that was begun from another model than the one in force now."""
    begun = out / "initial.safetensors"
    if begun.is_file() and models.digests(begun)["weights"] != in_force["weights"]:
        raise UserError(
            f"{out} was begun from another model than the one that is in force now; move it away, and answer again"
        )


def _named(asked: Asked) -> dict[str, Any]:
    """Return how a certificate names a request of the ledger."""
    entry = asked.entry
    dates = {key: entry[key] for key in ("received", "deadline")}
    return {"number": asked.number, "sha256": entry.sha256, **dates}


def adopt(ledger: Ledger, model: Path, how: How, note: str = "") -> Entry:
    """Record that another model is in use from now on, and measure on it what was forgotten earlier.

    Args:
        ledger: The ledger.
        model: A finished run, or a .safetensors file.
        how: How the federation is reached.
        note: Where the model comes from.
    """
    file = model / f"{Run.open(model).summary['final']}.safetensors" if model.is_dir() else model
    weights = models.digests(file)["weights"]
    ledger.check_signer(how.signer)
    _check_model(file, how)
    with ledger.exclusive():
        found = remeasured(ledger, file, how)
        facts = {"run": ledger.relative(model), "weights": weights, "note": note, "earlier": found}
        return ledger.adopt(facts, how.signer)


def _check_model(file: Path, how: How) -> None:
    """Refuse a model that is not the federation's: an entry that names it could not be taken back."""
    layout = how.federation(Request(), ()).layout
    try:
        start_from(layout, file, "model")
    except UserError as error:
        raise UserError(f"{file} is not a model of this federation: {error}; nothing was added") from error


def forgotten(ledger: Ledger) -> Request:
    """Return everything that was forgotten so far, as what has left: by answers, and by runs that were taken over."""
    found = Request()
    for entry in ledger.entries:
        if entry.kind in MODELS and (ledger.run_of(entry) / "request.json").is_file():
            found = Request().after(Request.from_json(Run.open(ledger.run_of(entry)).request)).after(found)
    return found


def remeasured(ledger: Ledger, model: Path, how: How) -> dict[str, Any]:
    """Measure a model on what each answered request forgot; by number of the request.

    A request is *held* if the model knows no more of it than when it was answered, or, where it has no mark, than of
    data that nobody trained on; *back* if an exact interval says that it knows more, or if the model is one that was in
    force before the answer; *unknown* if that cannot be said.
    """
    found, digest = {}, models.digests(model)["weights"]
    for entry in ledger.answers:
        run = Run.open(ledger.run_of(entry))
        request = Request.from_json(run.request)
        gone = [i for number in entry["requests"] for i in ledger.request(number).gone]
        federation = how.federation(request, gone)
        w = start_from(federation.layout, model, "model").w.to(federation.device)
        measured = _compared(federation, w, request, run.summary)
        own = {name: t.cpu().numpy() for name, t in federation.layout.named(w).items()}
        if measured["result"] != "back" and _restores(ledger, entry, {digest, models.weights_of(own)}):
            measured |= {"result": "back", "text": RESTORED}
        found[",".join(map(str, entry["requests"]))] = measured
    return found


def _restores(ledger: Ledger, answer: Entry, weights: Set[str]) -> bool:
    """Return whether a model was in force before an answer that put another one in force.

    Args:
        ledger: The ledger.
        answer: The entry of the answer.
        weights: Digests of the model: of its file, and of the tensors that the federation trains.
    """
    before = takewhile(lambda entry: entry.sha256 != answer.sha256, ledger.entries)
    held = [entry["weights"] for entry in before if entry.kind in MODELS]
    return answer["weights"] not in weights and not weights.isdisjoint(held)


def _compared(federation: Federation, w: Tensor, request: Request, then: Mapping[str, Any]) -> dict[str, Any]:
    forget, retained = request.sides(federation.ids)
    with federation.session():
        now, missing = measure(federation, w, w, forget, retained)
    before = then["stages"][then["final"]]
    marked = now["asr"] is not None and before["asr"] is not None
    key, count, words = (
        ("asr", "asr_samples", "its mark works in") if marked else ("forget_acc", "samples", "accuracy is")
    )
    held = {"asr": before["asr"], "forget_acc": before["forget_acc"]}
    result: dict[str, Any] = {"asr": now["asr"], "forget_acc": now["forget_acc"], "then": held}
    if now[key] is None or before[key] is None or any(i in missing for i in forget):
        absent = (f"client {i.removesuffix(VIRTUAL)}: {missing[i]}" for i in forget if i in missing)
        why = next(absent, "there is nothing to compare with")
        return {**result, "result": "unknown", "text": f"It could not be measured again ({why})."}
    usual = 0.0 if marked or request.classes else now["r_acc"] or 0.0  # right in a model that never saw the data
    limit = max(before[key], usual) + BACK
    samples = sum(now["clients"][i][count] for i in forget)
    low = exact(round(now[key] * samples), samples)[0]
    change = f"{words} {100 * now[key]:.1f}% on {samples} samples, {100 * before[key]:.1f}% when it was answered"
    change += "" if marked or request.classes else f", {100 * usual:.1f}% on test data"
    if now[key] <= limit:
        return {**result, "result": "held", "text": f"It is still forgotten: {change}."}
    if low <= limit - BACK:
        return {**result, "result": "unknown", "text": f"It may have come back, with too few samples to say: {change}."}
    return {**result, "result": "back", "text": f"It has come back: {change}."}
