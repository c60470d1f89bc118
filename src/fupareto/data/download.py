"""Download of the public data sets, with resume and checksums.

A file is downloaded as FILE.part, continues where an interrupted download stopped, and is renamed to FILE once its
checksum matches. Archives are kept beside their unpacked files, so that a second ``get`` finds everything in place.
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
"""Called with the file's name, the bytes on disk and the total bytes (None if the server does not report them)."""

CHUNK = 1 << 18
TIMEOUT = 30.0
_NETWORK = (URLError, TimeoutError, ConnectionError, http.client.HTTPException, ssl.SSLError)


@dataclass(frozen=True)
class Remote:
    """One published file.

    Attributes:
        url: Address of the file.
        file: Path below the directory of the data set.
        md5: Expected checksum.
        size: Expected size in bytes; None if it is not known.
    """

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
    # Not GTSRB-Training_fixed.zip, the set of the 2011 competition: 26,640 of the 39,209 training images.
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
    """Download and unpack the missing files of a data set.

    A file that was copied there by hand is used if its checksum matches. A file that does not match is replaced after
    the correct one has been downloaded.

    Args:
        name: A data set of :data:`RELEASES`.
        root: Directory of the data sets; see :func:`~fupareto.data.sources.data_root`.
        progress: Called while files are downloaded.
        releases: Data sets and their files, instead of :data:`RELEASES`.

    Returns:
        The directory of the data set.
    """
    known = RELEASES if releases is None else releases
    if name not in known:
        hint = " (digits needs no download)" if name == "digits" else ""
        near = did_you_mean(name, known)
        raise UserError(f"cannot download the data set {name!r}{hint}; choose one of {', '.join(known)}{near}")
    folder = data_root(root) / name
    try:
        for remote in known[name]:
            path = folder / remote.file
            if not (path.is_file() and _md5(path) == remote.md5):
                _fetch(remote, path, progress or (lambda *_: None))
            _unpack(path, folder)
    except OSError as error:
        raise UserError(
            f"cannot write {name} to {folder}: {error.strerror or error}; free disk space, fix the permissions, or "
            "set FUPARETO_DATA to another directory"
        ) from error
    return folder


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _fetch(remote: Remote, path: Path, progress: Progress) -> None:
    """Download FILE.part, check it and rename it; delete it on a wrong checksum, keep it after an interruption."""
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
            f"{remote.url} has MD5 checksum {found}, expected {remote.md5}; the download was deleted. Try again, or "
            f"get the file from elsewhere and put it at {path}"
        )
    part.replace(path)


def _by_hand(remote: Remote, path: Path, reason: str) -> str:
    return (
        f"cannot download {remote.url} ({reason}); try again later (the download continues where it stopped), "
        f"or put that file at {path} (md5 {remote.md5}) and run the same command"
    )


def _transfer(remote: Remote, part: Path, progress: Progress) -> None:
    """Append to ``part`` from its end; start over if the server cannot resume or the part is too long."""
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
    """Request the file from byte ``start`` on; the response is that range (206), or the whole file if unsupported."""
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
    """Unpack a tar or zip file into ``folder`` unless its files exist; refuse members outside ``folder``."""
    try:
        if archive.name.endswith((".tar.gz", ".tgz", ".tar")):
            with tarfile.open(archive) as tar:
                files = ((m.name, m.size if m.isfile() else None) for m in tar)
                if _incomplete(archive, folder, files):
                    tar.extractall(folder, filter="data")
        elif archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as pack:
                files = ((i.filename, None if i.is_dir() else i.file_size) for i in pack.infolist())
                if _incomplete(archive, folder, files):
                    pack.extractall(folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise UserError(f"{archive} cannot be unpacked ({error}); delete it and download it again") from error


def _incomplete(archive: Path, folder: Path, members: Iterator[tuple[str, int | None]]) -> bool:
    """Check every name (size None: not a file) before anything is written; return whether a file is missing."""
    base, incomplete = folder.resolve(), False
    for name, size in members:
        if not Path(os.path.normpath(base / name)).is_relative_to(base):
            raise UserError(
                f"{archive} contains {name!r}, which would be unpacked outside {folder}; the archive is unsafe"
            )
        path = base / name
        incomplete = incomplete or (size is not None and not (path.is_file() and path.stat().st_size == size))
    return incomplete
