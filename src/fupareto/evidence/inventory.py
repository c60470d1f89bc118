"""Inventory of what still carries the forgotten below a directory, and why.

A model carries a request of its family (families.py) unless the request was answered, or its data were left out, when
the model was made. What names the forgotten but was not computed from their data is listed as well: ids, row numbers,
measurements. Of a run that is not readable nothing is known: it may carry the forgotten, and nothing of its family is
removable, since the model that answers a request may be the one that is damaged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fupareto.evidence import purges, signing, timestamps
from fupareto.evidence.asking import Request, covered
from fupareto.evidence.families import Found, families, find
from fupareto.evidence.issue import FILE as CERTIFICATE
from fupareto.run.storage import CHECKPOINT, DOCUMENTS, MODELS
from fupareto.vocabulary import retrains, shadows_of

CARRIES, NAMES, CLEAN = "carries", "names", "clean"
DAMAGED, UNKNOWN = "damaged", "unknown"  # a run that is not readable; a model of which nothing is known therefore
SEALED = (CERTIFICATE, *(str(of(Path(CERTIFICATE))) for of in (signing.bundle_of, timestamps.stamp_of)))
EVIDENCE = (*DOCUMENTS, "earlier.json", *SEALED, purges.FILE)
OWN = {*EVIDENCE, *MODELS, "manifest.json", "demo.json", ".lock"}


@dataclass(frozen=True)
class Artefact:
    """One file, or several of one kind, below a directory.

    Attributes:
        path: The file, or the directory and pattern of several.
        files: The files.
        status: "carries", "names" or "clean"; "damaged" for a run that is not readable, "unknown" for a model that may
            carry a request because of that.
        requests: The requests that it carries, in words.
        why: Reason in words.
        removable: Whether a purge removes it.
        bytes: Size of the files.
    """

    path: Path
    files: tuple[Path, ...]
    status: str
    requests: tuple[str, ...]
    why: str
    removable: bool = False
    bytes: int = 0


def words(asked: Request) -> str:
    """Return a request in words."""
    if asked.get("samples"):
        rows = asked["samples"]
        return f"{sum(map(len, rows.values()))} samples of {', '.join(rows)}"
    if asked.get("classes"):
        return f"class {', '.join(map(str, asked['classes']))}"
    return f"client {', '.join(map(str, asked.get('clients', ())))}"


def take(where: Path) -> tuple[list[Artefact], list[str]]:
    """Return the artefacts below a directory that belong to a family with requests, and remarks.

    A family with a run that is not readable is listed in any case.
    """
    found, remarks = find(where)
    artefacts: list[Artefact] = []
    for family in families(found):
        damaged = [one for one in family if one.flaw]
        requests = _requests(family)
        if not requests and not damaged:
            continue
        for one in damaged:
            remarks.append(f"{one.path} is not readable; nothing of its family is removable until it is")
        unfinished = [one for one in family if not one.flaw and not one.run.finished]
        remarks += [f"{one.path} is not finished; what it starts from is kept until it is" for one in unfinished]
        for one in family:
            listed = _unreadable(one) if one.flaw else _of(one, requests, not unfinished, family)
            artefacts += [_kept(artefact, damaged) for artefact in listed]
            for name in sorted(p.name for p in one.path.iterdir() if p.is_file() and p.name not in OWN):
                remarks.append(f"{one.path / name} is not a file of a run, and was not examined")
    return artefacts, remarks


def _requests(family: Sequence[Found]) -> dict[str, Request]:
    """Return the requests of a family by their words, with a number where different ones have the same words."""
    found: dict[str, Request] = {}
    for asked in (one.request for one in family if one.request):
        if not any(covered(asked, [other]) and covered(other, [asked]) for other in found.values()):
            name = words(asked)
            same = sum(words(other) == name for other in found.values())
            found[f"{name} ({same + 1})" if same else name] = asked
    return found


def _unreadable(one: Found) -> Iterator[Artefact]:
    """Yield what lies in a run that is not readable, the run itself first, with the reason."""
    documents = _documents(one.path)
    yield Artefact(one.path, documents, DAMAGED, (), f"not readable: {one.flaw}", False, _size(documents))
    for path in (one.path / name for name in (*MODELS, CHECKPOINT, "replay", "history", "shadows")):
        files = [path] if path.is_file() else sorted(path.rglob("*.safetensors"))
        if files:
            why = "may carry the forgotten: its run is not readable"
            yield Artefact(path, tuple(files), UNKNOWN, (), why, False, _size(files))


def _kept(artefact: Artefact, damaged: Sequence[Found]) -> Artefact:
    """Return an artefact as it is to be judged beside runs of its family that are not readable."""
    if artefact.status == CLEAN and (lost := [one.path for one in damaged if one.unknown]):
        return replace(
            artefact, status=UNKNOWN, why=f"may carry what {lost[0]} was asked to forget, which is not known"
        )
    if artefact.removable and damaged:
        why = f"{artefact.why}; kept, since {damaged[0].path} is not readable"
        return replace(artefact, removable=False, why=why)
    return artefact


def _of(one: Found, requests: Mapping[str, Request], settled: bool, family: Sequence[Found]) -> Iterator[Artefact]:
    """Yield the artefacts of one run.

    Args:
        one: The run.
        requests: All requests of its family.
        settled: Whether all runs of the family are finished, so that what they start from is needed no more.
        family: All runs of its family.
    """

    def carried(by: Sequence[Request]) -> tuple[str, ...]:
        return tuple(name for name, asked in requests.items() if not covered(asked, by))

    for stage in one.weights:
        path, left = one.path / f"{stage}.safetensors", carried(one.answered(stage))
        if stage == "initial" and left:
            yield _artefact(path, [path], left, "the model before the request, trained with them", settled)
        elif left:
            later = [carried(other.answered("unlearned")) for other in family if _follows(other, one)]
            passed = one.purged(stage) or any(set(theirs) <= set(left) for theirs in later)
            why = "made before the later request" + (
                "" if passed else "; no later model takes its place, so it is kept"
            )
            yield _artefact(path, [path], left, why, settled and passed)
        else:
            yield _artefact(path, [path], (), _result(one))
    if (state := one.path / CHECKPOINT).is_file():
        yield _artefact(state, [state], tuple(requests), "the state of a run that dealt with them", one.run.finished)
    if kept := sorted((one.path / "replay").glob("*.safetensors")):
        begun = "unlearned" if _retrains(one) else "initial"  # a retrained model does not start from the initial one
        left = carried(one.answered(begun))
        yield _artefact(
            one.path / "replay", kept, left, f"states of rounds, to compute them again; {_seen(one)}", settled
        )
    yield from _history(one.path / "history", tuple(requests), settled)
    yield from _shadows(one, requests, settled)
    documents = _documents(one.path)
    why = "ids, row numbers and measurements by client; kept as evidence"
    yield Artefact(one.path, documents, NAMES, tuple(requests), why, False, _size(documents))


def _follows(later: Found, one: Found) -> bool:
    """Return whether a run answered a request, starting from the model that another one ended with."""
    begins = later.weights.get("initial") if later.request and later is not one else None
    return begins is not None and begins == one.final


def _documents(run: Path) -> tuple[Path, ...]:
    return tuple(run / name for name in EVIDENCE if (run / name).is_file())


def _retrains(one: Found) -> bool:
    return retrains(one.config.get("method"))


def _result(one: Found) -> str:
    if _retrains(one):
        return "retrained without them: it never saw them"
    return "made to forget them; how well is in summary.json and audit.json"


def _seen(one: Found) -> str:
    """Return what the models of the kept rounds have seen of what the run forgot."""
    if _retrains(one):
        return "their models never saw what this run forgot"
    return "their models are from before all of it was forgotten"


def _history(folder: Path, requests: tuple[str, ...], settled: bool) -> Iterator[Artefact]:
    """Yield the history of a training: local models, and global ones to which the forgotten contributed."""
    for part in sorted(p for p in folder.glob("*") if p.is_dir() and not p.is_symlink()):
        models = sorted(part.rglob("*.safetensors"))
        if models:
            why = "local models of the training, of the forgotten and of clients that trained with them"
            yield _artefact(part, models, requests, why, settled)


def _shadows(one: Found, requests: Mapping[str, Request], settled: bool) -> Iterator[Artefact]:
    folder = one.path / "shadows"
    known = {shadows_of(asked): asked for asked in requests.values()}
    for place in [folder, *sorted(p for p in folder.glob("*") if p.is_dir() and not p.is_symlink())]:
        for kind, why in (
            ("with", "shadow models that were trained with half of their samples"),
            ("forgotten", "shadow models that were trained with half of their samples, and then unlearned"),
            ("without", "shadow models that never saw them"),
        ):
            models = sorted(place.glob(f"{kind}-*.safetensors"))
            by = [known[place.name]] if kind == "without" and place.name in known else []
            left = tuple(name for name, asked in requests.items() if not covered(asked, by))
            if models:
                yield _artefact(place / f"{kind}-*", models, left, why, settled)


def _artefact(
    path: Path, files: Sequence[Path], requests: tuple[str, ...], why: str, removable: bool = False
) -> Artefact:
    status = CARRIES if requests else CLEAN
    return Artefact(path, tuple(files), status, requests, why, removable and bool(requests), _size(files))


def _size(files: Sequence[Path]) -> int:
    return sum(path.lstat().st_size for path in files)
