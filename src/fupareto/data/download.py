"""How does a published data set get on disk, whole and unaltered?

Files arrive as FILE.part, are resumed where they stopped, and get their name once their checksum is right.
Archives are kept beside what they unpack to, so a second ``get`` can tell that everything is there.
"""

import hashlib
import http.client
import os
import ssl
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fupareto.data.sources import data_root
from fupareto.errors import UserError, did_you_mean

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes on disk and the bytes in all (None if the server does not say)."""

CHUNK = 1 << 18
TIMEOUT = 30.0
_NETWORK = (URLError, TimeoutError, ConnectionError, http.client.HTTPException, ssl.SSLError)


@dataclass(frozen=True)
class Remote:
    """One published file: where it is, its path below the set's folder, and what it must hash to."""

    url: str
    file: str
    md5: str
    size: int | None = None


_ZALANDO = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_ERDA = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"


def _at(base: str, file: str, md5: str, size: int | None = None) -> Remote:
    return Remote(base + file, file, md5, size)


RELEASES: dict[str, tuple[Remote, ...]] = {
    "fashion-mnist": (
        _at(_ZALANDO, "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
        _at(_ZALANDO, "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
        _at(_ZALANDO, "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
        _at(_ZALANDO, "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
    ),
    "cifar10": (_at(_TORONTO, "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),),
    "cifar100": (_at(_TORONTO, "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733),),
    # Not GTSRB-Training_fixed.zip: it is the 2011 competition's set, 26,640 of the 39,209 training images.
    "gtsrb": (
        _at(_ERDA, "GTSRB_Final_Training_Images.zip", "f33fd80ac59bff73c82d25ab499e03a3"),
        _at(_ERDA, "GTSRB_Final_Test_Images.zip", "c7e4e6327067d32654124b0fe9e82185"),
        _at(_ERDA, "GTSRB_Final_Test_GT.zip", "fe31e9c9270bbcd7b84b7f21a9d9d9e5"),
    ),
}


def get(
    name: str,
    root: Path | None = None,
    progress: Progress | None = None,
    releases: Mapping[str, Sequence[Remote]] | None = None,
) -> Path:
    """Download and unpack what is not there yet, and return the set's folder.

    A file put there by hand counts if its checksum is right; one that differs is replaced, but only once the
    right one has arrived.
    """
    known = RELEASES if releases is None else releases
    if name not in known:
        hint = " (digits needs no download)" if name == "digits" else ""
        near = did_you_mean(name, known)
        raise UserError(f"no download is known for {name!r}{hint}; choose one of {', '.join(known)}{near}")
    folder = data_root(root) / name
    try:
        for remote in known[name]:
            path = folder / remote.file
            if not (path.is_file() and _md5(path) == remote.md5):
                _fetch(remote, path, progress or (lambda *_: None))
            _unpack(path, folder)
    except OSError as error:
        raise UserError(
            f"cannot write {name} below {folder}: {error.strerror or error}; make room or permit writing "
            "there, or choose another place with FUPARETO_DATA"
        ) from error
    return folder


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _fetch(remote: Remote, path: Path, progress: Progress) -> None:
    """Complete FILE.part, check it and give it its name; a wrong one is deleted, a cut one is kept."""
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        _transfer(remote, part, progress)
    except HTTPError as error:
        error.close()
        raise UserError(_by_hand(remote, path, f"the server answered {error.code} {error.reason}")) from error
    except _NETWORK as error:
        reason = str(getattr(error, "reason", error)) or repr(error)
        raise UserError(_by_hand(remote, path, reason)) from error
    if (found := _md5(part)) != remote.md5:
        part.unlink()
        raise UserError(
            f"{remote.url} arrived with checksum {found}, not {remote.md5}, and was deleted; try again, and "
            f"if that does not help, get the file elsewhere and put it at {path}"
        )
    part.replace(path)


def _by_hand(remote: Remote, path: Path, reason: str) -> str:
    return (
        f"cannot download {remote.url} ({reason}); try again later (what has arrived is kept and resumed), "
        f"or put that file at {path} (md5 {remote.md5}) and run the same command"
    )


def _transfer(remote: Remote, part: Path, progress: Progress) -> None:
    """Append to ``part`` from where it ends; start over if the server cannot resume or it is too long."""
    have = part.stat().st_size if part.is_file() else 0
    if remote.size is not None and have > remote.size:
        have = 0
    elif have and _md5(part) == remote.md5:
        return
    response = _open(remote.url, have)
    with response:
        done = have if response.status == HTTPStatus.PARTIAL_CONTENT else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length and length.isdigit() else remote.size
        with part.open("ab" if done else "wb") as file:
            progress(remote.file, done, total)
            while block := response.read(CHUNK):
                file.write(block)
                done += len(block)
                progress(remote.file, done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection broke after {done} of {total} bytes")


def _open(url: str, start: int) -> http.client.HTTPResponse:
    """Ask for the file from byte ``start`` on; the answer is that (206) or, if the server cannot, all."""
    headers = {"User-Agent": "fupareto"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: http.client.HTTPResponse = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if not start or error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        return _open(url, 0)
    sent = response.headers.get("Content-Range") or ""
    if start and response.status == HTTPStatus.PARTIAL_CONTENT and not sent.startswith(f"bytes {start}-"):
        response.close()
        return _open(url, 0)
    return response


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar or zip into ``folder`` unless its files are there already; nothing may land outside."""
    try:
        if archive.name.endswith((".tar.gz", ".tgz", ".tar")):
            with tarfile.open(archive) as tar:
                files = ((m.name, m.size if m.isfile() else None) for m in tar)
                if _wanting(archive, folder, files):
                    tar.extractall(folder, filter="data")
        elif archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as pack:
                files = ((i.filename, None if i.is_dir() else i.file_size) for i in pack.infolist())
                if _wanting(archive, folder, files):
                    pack.extractall(folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise UserError(f"{archive} cannot be unpacked ({error}); delete it and get it again") from error


def _wanting(archive: Path, folder: Path, members: Iterator[tuple[str, int | None]]) -> bool:
    """Check every name (size None: no file) before anything is written; say whether some file is lacking."""
    base, wanting = folder.resolve(), False
    for name, size in members:
        if not Path(os.path.normpath(base / name)).is_relative_to(base):
            raise UserError(f"{archive} holds {name!r}, which would land outside {folder}; do not trust this file")
        path = base / name
        wanting = wanting or (size is not None and not (path.is_file() and path.stat().st_size == size))
    return wanting
