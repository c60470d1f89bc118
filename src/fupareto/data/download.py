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
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fupareto.data.sources import data_root
from fupareto.errors import UserError, did_you_mean

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes on disk and the total bytes (None if the server does not report them)."""

CHUNK = 1 << 18
LARGEST = 1 << 30  # bytes of a file whose size is not known
TIMEOUT = 30.0
_NETWORK = (URLError, TimeoutError, ConnectionError, http.client.HTTPException, ssl.SSLError)


@dataclass(frozen=True)
class Remote:
    """One published file.

    Attributes:
        url: Address of the file.
        file: Path below the directory of the data set.
        checksum: Expected checksum, after the name of its algorithm: ``sha256:...``, or ``md5:...`` where the publisher
            names no other.
        size: Expected size in bytes; None if it is not known.
    """

    url: str
    file: str
    checksum: str
    size: int | None = None


_ZALANDO = "https://fashion-mnist.s3.eu-central-1.amazonaws.com/"  # of its publisher; the website's address has no TLS
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_ERDA = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"


def _at(base: str, file: str, checksum: str, size: int | None = None) -> Remote:
    return Remote(base + file, file, checksum, size)


RELEASES: dict[str, tuple[Remote, ...]] = {
    "fashion-mnist": (
        _at(
            _ZALANDO,
            "train-images-idx3-ubyte.gz",
            "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            26_421_880,
        ),
        _at(
            _ZALANDO,
            "train-labels-idx1-ubyte.gz",
            "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            29_515,
        ),
        _at(
            _ZALANDO,
            "t10k-images-idx3-ubyte.gz",
            "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            4_422_102,
        ),
        _at(
            _ZALANDO,
            "t10k-labels-idx1-ubyte.gz",
            "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            5_148,
        ),
    ),
    "cifar10": (
        _at(
            _TORONTO,
            "cifar-10-binary.tar.gz",
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170_052_171,
        ),
    ),
    "cifar100": (
        _at(
            _TORONTO,
            "cifar-100-binary.tar.gz",
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            168_513_733,
        ),
    ),
    # Only MD5 is published of these. Not GTSRB-Training_fixed.zip,
    # the set of the 2011 competition: 26,640 of the 39,209 training images.
    "gtsrb": (
        _at(_ERDA, "GTSRB_Final_Training_Images.zip", "md5:f33fd80ac59bff73c82d25ab499e03a3"),
        _at(_ERDA, "GTSRB_Final_Test_Images.zip", "md5:c7e4e6327067d32654124b0fe9e82185"),
        _at(_ERDA, "GTSRB_Final_Test_GT.zip", "md5:fe31e9c9270bbcd7b84b7f21a9d9d9e5"),
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
            if not (path.is_file() and _matches(path, remote)):
                _fetch(remote, path, progress or (lambda *_: None))
            _unpack(path, folder)
    except OSError as error:
        raise UserError(
            f"cannot write {name} to {folder}: {error.strerror or error}; free disk space, fix the permissions, or "
            "set FUPARETO_DATA to another directory"
        ) from error
    return folder


def _checksum(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=algorithm != "md5"))
    return f"{algorithm}:{found.hexdigest()}"


def _matches(path: Path, remote: Remote) -> bool:
    return _checksum(path, remote.checksum.partition(":")[0]) == remote.checksum


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
    if (found := _checksum(part, remote.checksum.partition(":")[0])) != remote.checksum:
        part.unlink()
        raise UserError(
            f"{remote.url} has the checksum {found}, expected {remote.checksum}; the download was deleted. Try again, "
            f"or get the file from elsewhere and put it at {path}"
        )
    part.replace(path)


def _by_hand(remote: Remote, path: Path, reason: str) -> str:
    return (
        f"cannot download {remote.url} ({reason}); try again later (the download continues where it stopped), "
        f"or put that file at {path} ({remote.checksum}) and run the same command"
    )


def _transfer(remote: Remote, part: Path, progress: Progress) -> None:
    """Append to ``part`` from its end; start over if the server cannot resume or the part is too long."""
    have = part.stat().st_size if part.is_file() else 0
    if remote.size is not None and have > remote.size:
        have = 0
    elif have and _matches(part, remote):
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
                if done > (remote.size or LARGEST):
                    raise ConnectionError(f"the server sends more than {remote.size or LARGEST} bytes")
                progress(remote.file, done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection broke after {done} of {total} bytes")


class _StaysEncrypted(HTTPRedirectHandler):
    """Follows redirects, but not from https to an address without encryption."""

    def redirect_request(self, req: Request, *about: Any) -> Request | None:
        """Refuse a redirect that gives up encryption."""
        found = super().redirect_request(req, *about)
        if found is not None and req.type == "https" and found.type != "https":
            raise URLError(f"the server redirects to {found.full_url}, which is not encrypted")
        return found


_OPENER = build_opener(_StaysEncrypted)


def _open(url: str, start: int) -> http.client.HTTPResponse:
    """Request the file from byte ``start`` on; the response is that range (206), or the whole file if unsupported."""
    headers = {"User-Agent": "fupareto"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: http.client.HTTPResponse = _OPENER.open(Request(url, headers=headers), timeout=TIMEOUT)
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
