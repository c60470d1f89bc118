"""The chain of certificates: each names the one before it, of the same federation."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence import reading, schema
from fupareto.evidence.consistency import SKEW, when, within
from fupareto.evidence.findings import FAILED, NOT_CHECKED, OK, Finding, word


def chain(certificate: dict[str, Any], path: Path, given: Sequence[Path]) -> Iterator[Finding]:
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
        if left := certificate["request"].get("left"):
            text = f"{path} begins the chain, but {', '.join(map(str, left))} had left before: that is not certified."
            yield Finding(NOT_CHECKED, "left", text)
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
    if later["position"] != earlier["position"] + 1:
        text = f"{path} is number {later['position']} of its chain, and {found} before it number {earlier['position']}."
        yield Finding(FAILED, "position", text)
    dates = [when(certificate["created"]) for certificate in (earlier, later)]
    if dates[0] and dates[1] and dates[0] > dates[1] + SKEW:
        yield Finding(FAILED, "dates", f"{path} was created before {found}, which it follows.")
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
    yield from _data(earlier, later, found, path)


def _data(earlier: dict[str, Any], later: dict[str, Any], found: Path, path: Path) -> Iterator[Finding]:
    """Name clients whose data are others than before, where neither request divides them."""
    held = [certificate["summary"].get("data") for certificate in (earlier, later)]
    parted = any(certificate["request"].get(kind) for certificate in (earlier, later) for kind in PARTIAL)
    if parted or not all(isinstance(one, dict) for one in held):
        return
    both = [i for i in held[0] if held[0][i] and held[1].get(i) and held[0][i] != held[1][i]]
    if both:
        who = ", ".join(map(word, both[:5]))
        text = f"The data of {who} in {path} are others than in {found}: added, corrected or relabelled, nobody says."
        yield Finding(NOT_CHECKED, "data", text)


PARTIAL = ("samples", "classes", "left_samples", "left_classes")  # of a request: parts of clients


def _covers(later: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Return whether the later request asks for all that was asked for before."""
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
    if (one := earlier["summary"].get("frozen")) and (other := later["summary"].get("frozen")) and one != other:
        return "its frozen parameters are others"
    strange = (set(before["clients"]) ^ set(after["clients"])) - set(relation(earlier, later)["forgotten"])
    return f"it has other clients (see {', '.join(map(word, sorted(strange)[:5]))})" if strange else ""
