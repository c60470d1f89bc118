"""Verification of a certificate: whatever was changed since it was written is named."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence import purges, reading, schema
from fupareto.evidence.findings import FAILED, NOT_CHECKED, OK, Finding, pairs, word
from fupareto.evidence.remeasure import TOLERANCE, compare
from fupareto.tally import tally_of

Again = tuple[Mapping[str, Any], Mapping[str, Any] | None]  # a summary and an audit that were made again

NOT_MEASURED = Finding(
    NOT_CHECKED, "numbers", "The numbers were not measured again: that takes the clients' data (--data)."
)
NOT_SIGNED = Finding(
    NOT_CHECKED, "signature", "Who wrote the certificate: hashes do not tell; check its signature with your own tool."
)


def verify(
    path: Path,
    run: Path | None = None,
    previous: Sequence[Path] = (),
    again: Again | None = None,
    tolerance: float = TOLERANCE,
) -> list[Finding]:
    """Check a certificate, the files of its run and the certificates before it; nothing is written.

    The run is looked for in the certificate's own directory, earlier certificates beside it, unless they are given.
    ``again`` is what an audit says now, and is compared with what is certified.
    """
    certificate, data = schema.read_certificate(path)
    where = run or path.parent
    try:
        if not where.is_dir():
            raise UserError(f"there is no run directory {where}")
        return [
            *within(certificate, data, str(path)),
            *_files(certificate, where),
            *_copies(certificate, where),
            *_chain(certificate, path, previous),
            *purges.findings(where),
            *(compare(certificate, *again, tolerance) if again else [NOT_MEASURED]),
            NOT_SIGNED,
        ]
    except OSError as error:  # a directory that may not be looked into
        raise UserError(f"cannot read {error.filename or where}: {error.strerror}") from error


def within(certificate: dict[str, Any], data: bytes, whose: str) -> list[Finding]:
    """Check a certificate by itself: its digests, its bytes, and that no part contradicts another."""
    parts = certificate["parts"]
    content = {key: value for key, value in certificate.items() if key not in ("parts", "digest")}
    found = [
        Finding(FAILED, key, f"'{key}' of {whose}, or its SHA-256 in 'parts', was changed: they do not fit.")
        for key, value in content.items()
        if parts.get(key) != reading.sha256(value)
    ]
    for key in parts:
        if key not in content:
            found.append(Finding(FAILED, "parts", f"'parts' of {whose} was changed: it has {key!r}, which is no part."))
    if not found and reading.sha256({**content, "parts": parts}) != certificate["digest"]:
        text = f"'digest' of {whose} does not fit: it was changed, or a part together with its SHA-256 in 'parts'."
        found.append(Finding(FAILED, "digest", text))
    if schema.render(certificate) != data:
        text = f"{whose} is not written as certificates are: other spaces or signs, or a key that is there twice."
        found.append(Finding(FAILED, "certificate", text))
    for part in _contradictions(certificate):
        found.append(Finding(FAILED, part, f"'{part}' of {whose} contradicts the rest of the certificate."))
    whole = f"{whose} is as it was written: its digest and those of its parts fit, and no part contradicts another."
    return found or [Finding(OK, "certificate", whole)]


def _contradictions(certificate: dict[str, Any]) -> list[str]:
    summary, files, asked = certificate["summary"], certificate["files"], certificate["request"]

    def is_stage(part: str, stage: str) -> bool:
        model, name = certificate[part], f"{stage}.safetensors"
        return bool(model["stage"] == stage and model["file"] == name and model["sha256"] == files.get(name))

    words = certificate["verdict"], schema.verdict(summary, certificate["audit"])
    before_tallies = schema.prefix(summary) + summary["verdict"]  # as earlier versions wrote it
    counted = tally_of({}, certificate["audit"])
    needed = {"request.json", "summary.json", "config.toml", *(f"{s}.safetensors" for s in summary["stages"])}
    agree = {
        "about": certificate["about"] == schema.ABOUT,
        "status": certificate["status"] == summary["status"],
        "verdict": words[0] in (words[1], before_tallies),
        "summary": counted is None or tally_of(summary, certificate["audit"]) == counted,
        "request": not asked["clients"] or set(asked["clients"]) == set(summary["forget"]),
        "federation": certificate["federation"] == schema.federation(summary, certificate["config"]),
        "start": is_stage("start", "initial"),
        "kept": is_stage("kept", summary["final"]),
        "files": needed <= files.keys(),
        "audit": (certificate["audit"] is not None) == ("audit.json" in files),
    }
    return [part for part, agrees in agree.items() if not agrees]


def _files(certificate: dict[str, Any], where: Path) -> Iterator[Finding]:
    for name, expected in certificate["files"].items():
        path = where / name
        if not path.is_file():
            yield Finding(NOT_CHECKED, name, f"{name} is not in {where}, so it was not compared.")
        elif reading.hash_file(path) == expected:
            yield Finding(OK, name, f"{name} is the file that was certified.")
        else:
            yield Finding(FAILED, name, f"{path} was changed: it does not have the SHA-256 that is certified.")
    for name in schema.FILES:
        if name not in certificate["files"] and (where / name).exists():
            yield Finding(NOT_CHECKED, name, f"{where / name} is not part of the certificate: it says nothing of it.")


def _copies(certificate: dict[str, Any], where: Path) -> Iterator[Finding]:
    """Compare what the certificate copies from files, and says of models, with the files that are there."""
    sources: dict[str, tuple[str, Callable[[], Any]]] = {
        part: (name, partial(reading.document, where / name)) for part, name in schema.DOCUMENTS.items()
    }
    for part in ("start", "kept"):
        stage = certificate[part]["stage"]
        sources[part] = (f"{stage}.safetensors", partial(reading.hash_model, where, stage))
    same = []
    for part, (name, reader) in sources.items():
        if certificate[part] is None or not (where / name).is_file():
            continue
        try:
            found = reader()
        except UserError as error:
            yield Finding(FAILED, part, f"'{part}' cannot be compared with its file: {error}.")
            continue
        if reading.canonical(found) == reading.canonical(certificate[part]):
            same.append(part)
            continue
        places = [at for at, one, other in pairs(certificate[part], found, part) if one != other]
        yield Finding(FAILED, part, f"'{part}' is not what {where / name} says; see {', '.join(places[:5]) or part}.")
    if same:
        yield Finding(OK, "copies", f"What the certificate says of {', '.join(same)} is what the files say.")


# The chain ------------------------------------------------------------------------------------------------------


def _chain(certificate: dict[str, Any], path: Path, given: Sequence[Path]) -> Iterator[Finding]:
    """Follow the certificates back, as far as they are there."""
    unused = {reading.sha256(reading.read(p)): p for p in given}
    while link := certificate["previous"]:
        found = unused.pop(link["sha256"], None) or _seek(link, path)
        if found is None:
            hint = f", then at {link['hint']}" if link["hint"] else ""
            text = f"The certificate before {path} was not found (SHA-256 {link['sha256']}{hint}); see --previous."
            yield Finding(NOT_CHECKED, "previous", text)
            break
        try:
            earlier, data = schema.read_certificate(found)
        except UserError as error:
            yield Finding(FAILED, "previous", f"The certificate before {path} cannot be read: {error}.")
            break
        wrong = [f for f in within(earlier, data, str(found)) if f.level == FAILED]
        if reading.sha256(data) != link["sha256"]:
            text = f"{found} is not the certificate that {path} follows, or it was changed: another SHA-256."
            yield from [Finding(FAILED, "previous", text), *wrong]
            break
        yield from wrong or _followed(earlier, found, certificate, path)
        certificate, path = earlier, found
    else:
        yield Finding(OK, "previous", f"{path} is the first certificate of its chain.")
    for stray in unused.values():
        yield Finding(FAILED, "previous", f"{stray} was given, but no certificate of the chain follows it.")


def _seek(link: Mapping[str, Any], path: Path) -> Path | None:
    """Look for the earlier certificate next to this one, and prefer a file whose SHA-256 matches."""
    if not link["hint"]:
        return None
    own = path.resolve()
    places = [own.parent.parent / link["hint"], own.parent / Path(link["hint"]).name]
    there = [p for p in places if p.is_file() and p.resolve() != own]
    return next((p for p in there if reading.hash_file(p) == link["sha256"]), there[0] if there else None)


def _followed(earlier: dict[str, Any], found: Path, later: dict[str, Any], path: Path) -> Iterator[Finding]:
    """Say what it means that one certificate follows another."""
    link, truth = later["previous"], relation(earlier, later)
    if reason := of_another_federation(earlier, later):
        yield Finding(FAILED, "previous", f"{path} follows {found}, but that is of another federation: {reason}.")
        return
    if wrong := [key for key in truth if link[key] != truth[key]]:
        text = f"'previous' of {path} contradicts {found}: '{wrong[0]}' would be {truth[wrong[0]]!r}."
        yield Finding(FAILED, "previous", text)
        return
    yield Finding(OK, "previous", f"{path} follows {found}, in the same federation.")
    if link["start"] == "other":
        text = f"{path} starts from a model that {found} does not name: what happened in between is not certified."
        yield Finding(NOT_CHECKED, "start", text)
    if link["start"] == "same" and not _covers(later, earlier):
        text = (
            f"{path} starts from the same model as {found}, not from the one that was kept there: "
            "that its model forgot the earlier request too is not shown."
        )
        yield Finding(NOT_CHECKED, "start", text)


def _covers(later: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Whether the later request asks for all that was asked for before."""
    parts = [{k: v for k, v in c["request"].items() if k not in ("received", "clients")} for c in (later, earlier)]
    return parts[0] == parts[1] and set(later["previous"]["forgotten"]) <= set(later["request"]["clients"])


def relation(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Say where a later request starts (at the model kept before, the same one, or another), and after whom.

    ``forgotten`` are the clients, as wholes, of all earlier requests of the chain.
    """
    weights, so_far = later["start"]["weights"], (earlier["previous"] or {}).get("forgotten", [])
    same = "same" if weights == earlier["start"]["weights"] else "other"
    return {
        "start": "kept" if weights == earlier["kept"]["weights"] else same,
        "forgotten": sorted({*so_far, *earlier["request"]["clients"]}),
    }


def of_another_federation(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> str:
    """Say why two certificates are not of one federation; nothing if they are.

    One federation has one model, one source of data and the same clients; those that were forgotten before may be
    gone. A model's weights cannot tell: it may have been trained on between two requests.
    """
    before, after = earlier["federation"], later["federation"]
    if before["model"] != after["model"] or earlier["start"]["layout"] != later["start"]["layout"]:
        return "it has another model"
    if before["data"] and after["data"] and before["data"] != after["data"]:
        return "its clients' data come from another source, partition or seed"
    strange = (set(before["clients"]) ^ set(after["clients"])) - set(relation(earlier, later)["forgotten"])
    return f"it has other clients (see {', '.join(map(word, sorted(strange)[:5]))})" if strange else ""
