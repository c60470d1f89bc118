"""Models of a run and of what its audit compared with: bound by their files, loaded, and told from each other."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence import models, purges, reading
from fupareto.evidence.findings import FAILED, NOT_CHECKED, OK, Finding
from fupareto.vocabulary import retrains

PLACES = ("retrained", "retrained-2")
SHADOWS = "shadows"
FILES = ("config.toml", "request.json", "rounds.jsonl", "summary.json", "unlearned.safetensors")  # of a retrained run
NEAR = 1e-3  # share of its norm by which a retrained model must at least differ from the kept and the initial one
CLOSE = 1e-3  # share by which a distance that is measured again may differ


def draw(where: Path) -> list[dict[str, Any]]:
    """Return what a certificate says of the retrained and shadow models of a run."""
    found = []
    for place in PLACES:
        held = {name: reading.hash_file(where / place / name) for name in FILES if (where / place / name).is_file()}
        if "summary.json" in held and "unlearned.safetensors" in held:
            weights = models.digests(where / place / "unlearned.safetensors")["weights"]
            found.append({"place": place, "weights": weights, "files": held})
    if held := _shadows(where):
        found.append(_together(held))
    return found


def _shadows(where: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of the shadow models, by name."""
    files = sorted(path for path in (where / SHADOWS).rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(where / SHADOWS).as_posix(): reading.hash_file(path) for path in files}


def _together(held: Mapping[str, str]) -> dict[str, Any]:
    """Return what a certificate says of shadow models: one digest of many files."""
    digest = hashlib.sha256(reading.canonical(dict(held))).hexdigest()
    return {"place": SHADOWS, "weights": None, "files": {"*": digest}}


def _purged(held: Mapping[str, Any], where: Path) -> bool:
    """Return whether the shadow models are those that are certified, but for what a recorded purge removed."""
    gone = {path: digest for path, digest in purges.removed(where).items() if path.startswith(f"{SHADOWS}/")}
    before = {path.removeprefix(f"{SHADOWS}/"): digest for path, digest in gone.items()}
    return held["place"] == SHADOWS and _together({**before, **_shadows(where)}) == held


def check(certificate: Mapping[str, Any], where: Path) -> Iterator[Finding]:
    """Check the retrained and shadow models that the audit compared with."""
    audit, held = certificate["audit"] or {}, {one["place"]: one for one in certificate["references"]}
    now = {one["place"]: one for one in draw(where)}
    if audit.get("truth") and not any(place in held for place in PLACES):
        text = "The audit compares with a retrained model that is not part of the run: it is not bound, nor checked."
        yield Finding(NOT_CHECKED, "truth", text)
    if isinstance(audit.get("tier"), int) and audit["tier"] > 1 and SHADOWS not in held:
        text = "The audit rests on shadow models that are not in the run's directory: they are not bound, nor checked."
        yield Finding(NOT_CHECKED, SHADOWS, text)
    for place, one in held.items():
        if place not in now:
            yield Finding(NOT_CHECKED, place, f"{where / place} is not there, so it was not compared.")
        elif now[place] != one and _purged(one, where):
            yield Finding(
                NOT_CHECKED, place, f"Models in {place} were purged; the others are those that were certified."
            )
        elif now[place] != one:
            yield Finding(FAILED, place, f"{where / place} was changed: its files are not those that are certified.")
        elif place == SHADOWS:
            yield Finding(OK, place, f"The models in {place} are those that were certified.")
        else:
            yield from _retrained(certificate, where, place)
    for place in now.keys() - held.keys():
        yield Finding(NOT_CHECKED, place, f"{where / place} is not part of the certificate: it says nothing of it.")


def _retrained(certificate: Mapping[str, Any], where: Path, place: str) -> Iterator[Finding]:
    """Check that a retrained model is one: made by the method retrain, for this request, and a model of its own."""
    gone = purges.removed(where)
    absent = [p for p in ("kept", "start") if not (where / certificate[p]["file"]).is_file()]
    purged = [p for p in absent if gone.get(certificate[p]["file"]) == certificate[p]["sha256"]]
    try:
        config, request = (reading.document(where / place / name) for name in ("config.toml", "request.json"))
        summary = reading.document(where / place / "summary.json")
        own = models.load(where / place / "unlearned.safetensors")
        others = {
            part: models.load(where / certificate[part]["file"]) for part in ("kept", "start") if part not in purged
        }
    except UserError as error:
        yield Finding(FAILED, place, f"{place} cannot be checked: {error}.")
        return
    if not retrains(config.get("method")):
        yield Finding(FAILED, place, f"{where / place} is not a run of the method retrain, or of ridge anew.")
        return
    asked = [{k: v for k, v in r.items() if k != "received"} for r in (request, certificate["request"])]
    if asked[0] != asked[1]:
        yield Finding(FAILED, place, f"{where / place} was retrained for another request.")
        return
    by = [method.get("name") for method in (config["method"], certificate["config"].get("method") or {})]
    for part, other in others.items():
        if part == "kept" and by == ["ridge", "ridge"]:
            continue  # the theorem: forgetting by ridge is the same as retraining
        share = 0.0 if by[0] == "ridge" else NEAR  # most of a ridge model is the feature extractor, which stays
        near = models.alike((own, other)) and models.distance(own, other) <= share * models.norm(other)
        if near:
            name = certificate[part]["file"]
            yield Finding(FAILED, place, f"The retrained model in {place} is {name}, or nearly: it proves nothing.")
            return
    if purged:
        names = " and ".join(certificate[part]["file"] for part in purged)
        yield Finding(NOT_CHECKED, place, f"{place} was not compared with {names}: purged, as {purges.FILE} records.")
    if not (where / place / "initial.safetensors").is_file():
        text = f"{where / place} has no initial.safetensors, so its distance from it was not measured again."
        yield Finding(NOT_CHECKED, place, text)
    yield from stages(summary, where / place, ("unlearned",), place)


def kept(certificate: Mapping[str, Any], where: Path) -> Iterator[Finding]:
    """Check the models of the run: they load, they are models of one layout, and are as far apart as is said."""
    if certificate["kept"]["weights"] == certificate["start"]["weights"] and certificate["status"] == "complete":
        text = "The model to keep is the model before the request: nothing was unlearned, whatever the numbers say."
        yield Finding(FAILED, "kept", text)
    if certificate["kept"]["layout"] != certificate["start"]["layout"]:
        yield Finding(FAILED, "kept", "The model to keep has other tensors than the model before the request.")
    present = [s for s in certificate["summary"]["stages"] if (where / f"{s}.safetensors").is_file()]
    yield from stages(certificate["summary"], where, present, "models")


def stages(summary: Mapping[str, Any], where: Path, names: Any, about: str) -> Iterator[Finding]:
    """Load models and compare their distances from the initial one with those in a summary."""
    checked = []
    try:
        first = models.load(where / "initial.safetensors") if (where / "initial.safetensors").is_file() else None
    except UserError as error:
        yield Finding(FAILED, f"{about}.initial", f"{error}.")
        return
    for name in names:
        try:
            model = models.load(where / f"{name}.safetensors")
        except UserError as error:
            yield Finding(FAILED, f"{about}.{name}", f"{error}.")
            continue
        said = summary["stages"].get(name, {}) if isinstance(summary.get("stages"), dict) else {}
        said = said.get("distance") if isinstance(said, dict) else None
        if first is None or not models.alike((first, model)) or not isinstance(said, int | float):
            continue
        true = models.distance(model, first)
        if abs(true - said) > CLOSE * max(true, said, 1e-6):
            text = f"{where / name}.safetensors is {true:.4g} away from the initial model, and the summary says {said}."
            yield Finding(FAILED, f"{about}.{name}", text)
        else:
            checked.append(name)
    if checked:
        place = f"{about}/" if about in PLACES else ""
        named = ", ".join(f"{place}{name}" for name in checked)
        yield Finding(OK, about, f"{named}: can be loaded, and as far from the initial model as is said.")
