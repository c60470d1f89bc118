"""Issue of certificates: drawn from the files of a finished run, checked, sealed, never replacing another one."""

import hashlib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fupareto.errors import UserError
from fupareto.evidence import models, reading, references, schema, signing
from fupareto.evidence.chain import of_another_federation, relation
from fupareto.evidence.consistency import within
from fupareto.evidence.findings import FAILED
from fupareto.evidence.keys import Signer
from fupareto.files import put

if TYPE_CHECKING:
    from fupareto.run.directory import Run

FILE = "certificate.json"


def certify(
    run: Path,
    out: Path | None = None,
    previous: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
    signer: Signer | None = None,
    requests: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write the certificate of a finished unlearning run.

    One that already exists and still holds is left as it is, and may be signed; any other one is kept as evidence, and
    is not replaced.

    Args:
        run: The run directory.
        out: File or directory to write; by default certificate.json in the run.
        previous: The certificate of the request before it in the same federation.
        say: Function that shows a remark.
        signer: Key that signs the certificate.
        requests: Entries of the ledger that the run answers: number, sha256, received, deadline.

    Returns:
        The path of the certificate.
    """
    from fupareto.run.directory import Run

    _refuse_unfinished(Run.open(run))
    target = out or run / FILE
    target = target / FILE if target.is_dir() else target
    if previous and previous.resolve() == target.resolve():
        raise UserError(f"{target} cannot follow itself; choose another --out for the new certificate")
    drawn = draw(run)
    link, position = _link(previous, drawn) if previous else (None, 1)
    if target.exists():
        _keep(target, drawn, link)
        say(f"{target} already exists, and still holds.")
        sign(target, signer)
        return target
    place = {"position": position, "previous": link, "requests": [dict(entry) for entry in requests], "code": code()}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    certificate = schema.seal({"format": schema.FORMAT, "created": created, **drawn, **place})
    certificate = {key: certificate[key] for key in schema.ORDER}
    _refuse_useless(certificate, run)
    if wrong := [f.text for f in within(certificate, schema.render(certificate), str(run)) if f.level == FAILED]:
        raise UserError(f"{run} cannot be certified, because its files do not match each other: {'; '.join(wrong)}")
    try:
        put(target, schema.render(certificate))
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}; choose another --out") from error
    sign(target, signer)
    return target


def sign(certificate: Path, signer: Signer | None) -> None:
    """Sign a certificate, as a line of the file of signatures beside it."""
    if signer is not None:
        held, data = schema.read_certificate(certificate)
        signing.add(certificate, [signing.envelope(signing.statement_of(held, data), signer)])


def code() -> dict[str, str]:
    """Return the version of fupareto, and the SHA-256 of its source files."""
    found = hashlib.sha256()
    root = Path(str(resources.files("fupareto")))
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return {"version": metadata.version("fupareto"), "sha256": found.hexdigest()}


def _refuse_useless(certificate: Mapping[str, Any], run: Path) -> None:
    """Refuse to certify models that cannot be loaded, or that are not what the summary says."""
    if wrong := [f.text for f in references.kept(certificate, run) if f.level == FAILED]:
        raise UserError(f"{run} cannot be certified: {' '.join(wrong)}")


def _refuse_unfinished(run: "Run") -> None:
    kind = run.config.get("kind")
    if kind == "train":
        raise UserError(
            f"{run.path} is a training run, which has no request. "
            f"Answer a request first: fupareto unlearn {shlex.quote(str(run.path))} --clients … --out …"
        )
    if not run.finished and kind == "unlearn":
        source = str(run.config.get("trained", "…"))
        near = Path(os.path.normpath(run.path / source))
        words = [str(near if near.is_dir() else source), "--out", str(run.path), "--resume"]
        raise UserError(
            f"{run.path} is not finished; finish it, with the options that it was started with: "
            f"fupareto unlearn {shlex.join(words)}"
        )
    if not run.finished:
        raise UserError(f"{run.path} has no summary.json; it was made from Python: call result.audit() there")


def draw(where: Path) -> dict[str, Any]:
    """Read a run's files and return the parts of the certificate that come from them."""
    files, copies = {}, dict[str, Any]()
    for part, name in schema.DOCUMENTS.items():
        if part in schema.OPTIONAL and not (where / name).is_file():
            copies[part] = None
            continue
        data = reading.read(where / name)  # hashed and copied from the same reading
        files[name], copies[part] = reading.sha256(data), reading.parse(where / name, data)
    schema.check_copies(copies["request"], copies["summary"], where)
    summary = copies["summary"]
    start, kept = (models.identity(where, stage) for stage in ("initial", summary["final"]))
    files |= {model["file"]: model["sha256"] for model in (start, kept)}
    for name in schema.FILES:
        stage = name.removesuffix(".safetensors")
        if name not in files and (stage in summary["stages"] or (where / name).is_file()):
            model = name.endswith(".safetensors")  # which is looked into, so that no cut file is certified
            files[name] = models.identity(where, stage)["sha256"] if model else reading.hash_file(where / name)
    return {
        "about": schema.ABOUT,
        "status": summary["status"],
        "verdict": schema.verdict(summary, copies["audit"]),
        "federation": schema.federation(summary, copies["config"]),
        "start": start,
        "kept": kept,
        "references": references.draw(where),
        "files": {name: files[name] for name in schema.FILES if name in files},
        **copies,
    }


def _link(previous: Path, drawn: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return how a certificate refers to the one before it, whole and of this federation, and its own place."""
    earlier, data = schema.read_certificate(previous)
    if wrong := [f.text for f in within(earlier, data, str(previous)) if f.level == FAILED]:
        raise UserError(f"nothing can follow {previous}, which was changed: {'; '.join(wrong)}")
    if reason := of_another_federation(earlier, drawn):
        raise UserError(f"{previous} is a certificate of another federation: {reason}")
    place = previous.resolve()
    hint: str | None = f"{place.parent.name}/{place.name}"
    try:
        schema.beside(hint or "")
    except ValueError:
        hint = None
    link = {"sha256": reading.sha256(data), "hint": hint, **relation(earlier, drawn)}
    return link, earlier["position"] + 1


def _keep(target: Path, drawn: dict[str, Any], link: dict[str, Any] | None) -> None:
    """Refuse to replace a certificate that does not match the run."""
    advice = "move it away, or choose another --out; to have the new one follow it, name it with --previous"
    try:
        old, data = schema.read_certificate(target)
    except UserError as error:
        raise UserError(f"{target} already exists, and is not a valid certificate ({error}); {advice}") from error
    changed = [f.about for f in within(old, data, str(target)) if f.level == FAILED]
    changed += [part for part, value in drawn.items() if part not in changed and old[part] != value]
    if link and (old["previous"] or {}).get("sha256") != link["sha256"]:
        changed.append("previous")
    if changed:
        raise UserError(f"{target} already exists, and does not match the run in {', '.join(changed)}; {advice}")
