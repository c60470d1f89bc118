"""The downloader against a real server on the loopback interface."""

import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request

import pytest

from fupareto.data import download
from fupareto.data.download import RELEASES, Remote, _StaysEncrypted, get
from fupareto.errors import UserError

CONTENT = bytes(range(256)) * 4000


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Server(ThreadingHTTPServer):
    """Serves ``files``; ``how`` switches its manners: range, plain, cut, shifted."""

    daemon_threads = True
    files: dict[str, bytes]
    how = "range"
    seen: list[str | None]

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def remote(self, name: str, content: bytes, size: int | None = None) -> Remote:
        self.files[name] = content
        return Remote(self.url(name), name, sha256(content), size)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.seen.append(asked)
        content = self.server.files.get(self.path[1:])
        if content is None:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.how != "plain" else 0
        if start >= len(content):
            self.send_error(416)
            return
        if self.server.how == "shifted" and start:
            start += 1
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content) // 2 if self.server.how == "cut" else len(content)
        self.wfile.write(content[start:end])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as running:
        running.files, running.seen = {}, []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_the_releases_are_complete_and_well_formed() -> None:
    assert {name: len(remotes) for name, remotes in RELEASES.items()} == {
        "fashion-mnist": 4,
        "cifar10": 1,
        "cifar100": 1,
        "gtsrb": 3,
    }
    for remote in (remote for remotes in RELEASES.values() for remote in remotes):
        assert remote.url.startswith("https://")
        assert remote.url.endswith("/" + remote.file)
        algorithm, _, digest = remote.checksum.partition(":")
        assert len(bytes.fromhex(digest)) == hashlib.new(algorithm).digest_size
        assert algorithm == "sha256" or remote in RELEASES["gtsrb"]


def test_a_redirect_does_not_give_up_encryption() -> None:
    handler = _StaysEncrypted()
    answer = (io.BytesIO(), 302, "Found", Message())
    followed = handler.redirect_request(Request("https://a.org/x"), *answer, "https://b.org/x")
    assert followed is not None
    assert followed.full_url == "https://b.org/x"
    with pytest.raises(URLError, match=r"http://b.org/x, which is not encrypted"):
        handler.redirect_request(Request("https://a.org/x"), *answer, "http://b.org/x")


def test_a_server_that_never_stops_sending_is_cut_off(server: Server, tmp_path: Path) -> None:
    remote = server.remote("a.bin", CONTENT, len(CONTENT) // 2)
    with pytest.raises(UserError, match=f"more than {len(CONTENT) // 2} bytes"):
        get("toy", tmp_path, None, {"toy": [remote]})


def test_md5_is_checked_where_nothing_else_is_published(server: Server, tmp_path: Path) -> None:
    server.remote("a.bin", CONTENT)
    good = Remote(server.url("a.bin"), "a.bin", f"md5:{hashlib.md5(CONTENT).hexdigest()}")
    assert (get("toy", tmp_path, None, {"toy": [good]}) / "a.bin").read_bytes() == CONTENT


def test_a_complete_download_reports_progress_and_is_not_repeated(server: Server, tmp_path: Path) -> None:
    releases = {"toy": [server.remote("a.bin", CONTENT), server.remote("b.bin", b"b")]}
    steps: list[tuple[str, int, int | None]] = []
    folder = get("toy", tmp_path, lambda *step: steps.append(step), releases)
    assert folder == tmp_path / "toy"
    assert (folder / "a.bin").read_bytes() == CONTENT
    assert sorted(path.name for path in folder.iterdir()) == ["a.bin", "b.bin"]
    of_a = [step for step in steps if step[0] == "a.bin"]
    assert of_a[0] == ("a.bin", 0, len(CONTENT))
    assert of_a[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert of_a == sorted(of_a)
    get("toy", tmp_path, None, releases)
    assert len(server.seen) == 2


@pytest.mark.parametrize("how", ["range", "plain", "shifted"])
@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_partial_file_is_resumed_if_the_server_can_and_begun_again_if_not(
    server: Server, tmp_path: Path, how: str, size: int | None
) -> None:
    server.how = how
    releases = {"toy": [server.remote("a.bin", CONTENT, size)]}
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/a.bin.part").write_bytes(CONTENT[:1000])
    steps: list[int] = []
    get("toy", tmp_path, lambda _, done, __: steps.append(done), releases)
    assert (tmp_path / "toy/a.bin").read_bytes() == CONTENT
    assert server.seen == (["bytes=1000-", None] if how == "shifted" else ["bytes=1000-"])
    assert steps[0] == (1000 if how == "range" else 0)


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_partial_file_that_is_already_whole_or_too_long(server: Server, tmp_path: Path, size: int | None) -> None:
    releases = {"toy": [server.remote("a.bin", CONTENT, size)]}
    part, path = tmp_path / "toy/a.bin.part", tmp_path / "toy/a.bin"
    part.parent.mkdir()
    part.write_bytes(CONTENT)
    get("toy", tmp_path, None, releases)
    assert server.seen == []
    path.unlink()
    part.write_bytes(CONTENT + b"more")
    get("toy", tmp_path, None, releases)
    assert path.read_bytes() == CONTENT


def test_a_connection_that_breaks_keeps_what_has_arrived(server: Server, tmp_path: Path) -> None:
    releases = {"toy": [server.remote("a.bin", CONTENT)]}
    server.how = "cut"
    with pytest.raises(UserError, match=f"broke after {len(CONTENT) // 2} of {len(CONTENT)} bytes"):
        get("toy", tmp_path, None, releases)
    assert (tmp_path / "toy/a.bin.part").stat().st_size == len(CONTENT) // 2
    server.how = "range"
    get("toy", tmp_path, None, releases)
    assert server.seen[-1] == f"bytes={len(CONTENT) // 2}-"
    assert (tmp_path / "toy/a.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_deletes_the_download_and_keeps_the_old_file(server: Server, tmp_path: Path) -> None:
    remote = server.remote("a.bin", CONTENT)
    server.files["a.bin"] = CONTENT[::-1]
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/a.bin").write_bytes(b"another version")
    with pytest.raises(UserError, match="checksum") as caught:
        get("toy", tmp_path, None, {"toy": [remote]})
    assert remote.checksum in str(caught.value)
    assert [path.name for path in (tmp_path / "toy").iterdir()] == ["a.bin"]
    assert (tmp_path / "toy/a.bin").read_bytes() == b"another version"


def test_a_file_put_there_by_hand_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/a.bin").write_bytes(CONTENT)
    remote = Remote("http://127.0.0.1:1/a.bin", "a.bin", sha256(CONTENT))
    assert get("toy", tmp_path, None, {"toy": [remote]}) == tmp_path / "toy"


def test_not_found_and_connection_refused_name_the_file_and_the_place(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the server answered 404") as caught:
        get("toy", tmp_path, None, {"toy": [Remote(server.url("none.bin"), "none.bin", "sha256:0")]})
    assert server.url("none.bin") in str(caught.value)
    refused = Remote("http://127.0.0.1:1/a.bin", "a.bin", "sha256:0")
    (tmp_path / "toy/a.bin.part").write_bytes(b"begun")
    with pytest.raises(UserError, match="refused") as caught:
        get("toy", tmp_path, None, {"toy": [refused]})
    assert refused.url in str(caught.value)
    assert str(tmp_path / "toy/a.bin") in str(caught.value)
    assert (tmp_path / "toy/a.bin.part").read_bytes() == b"begun"


def test_a_server_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(download, "TIMEOUT", 0.1)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        remote = Remote(f"http://127.0.0.1:{silent.getsockname()[1]}/a.bin", "a.bin", "sha256:0")
        with pytest.raises(UserError, match="timed out"):
            get("toy", tmp_path, None, {"toy": [remote]})


def archive(kind: str, files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as pack:
            for name, content in files.items():
                pack.writestr(name, content)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_archives_are_unpacked_once_and_mended_when_a_file_is_lost(server: Server, tmp_path: Path, kind: str) -> None:
    packed = archive(kind, {"set/train.bin": CONTENT, "set/test.bin": b"test"})
    releases = {"toy": [server.remote(f"set.{kind}", packed)]}
    get("toy", tmp_path, None, releases)
    train = tmp_path / "toy/set/train.bin"
    assert train.read_bytes() == CONTENT
    stamp = train.stat().st_mtime_ns
    get("toy", tmp_path, None, releases)
    assert train.stat().st_mtime_ns == stamp
    train.write_bytes(CONTENT[:10])
    get("toy", tmp_path, None, releases)
    assert train.read_bytes() == CONTENT
    assert len(server.seen) == 1


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("name", ["../outside", "set/../../outside", "{root}/outside"])
def test_an_archive_may_not_write_outside_its_folder(server: Server, tmp_path: Path, kind: str, name: str) -> None:
    packed = archive(kind, {"inside": b"good", name.format(root=tmp_path): b"bad"})
    with pytest.raises(UserError, match="outside"):
        get("toy", tmp_path, None, {"toy": [server.remote(f"set.{kind}", packed)]})
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "toy/inside").exists()


def test_a_link_out_of_the_folder_is_refused(server: Server, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "../.."
        tar.addfile(link)
        info = tarfile.TarInfo("link/outside")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"bad"))
    with pytest.raises(UserError, match="cannot be unpacked"):
        get("toy", tmp_path / "data", None, {"toy": [server.remote("set.tar.gz", buffer.getvalue())]})
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("name", ["set.zip", "set.tar.gz"])
@pytest.mark.parametrize("content", [b"<html>", gzip.compress(b"no tar")], ids=["page", "no tar"])
def test_a_file_that_is_no_archive(server: Server, tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(UserError, match="cannot be unpacked"):
        get("toy", tmp_path, None, {"toy": [server.remote(name, content)]})


def test_a_place_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match="FUPARETO_DATA"):
        get("toy", tmp_path / "file", None, {"toy": [server.remote("a.bin", CONTENT)]})


def test_a_full_disk(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    releases = {"toy": [server.remote("a.bin", CONTENT)]}
    with pytest.raises(UserError, match="No space left on device; free disk space"):
        get("toy", tmp_path, full, releases)


def test_unknown_names_list_what_can_be_had(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fashion-mnist, cifar10, cifar100, gtsrb"):
        get("mnist", tmp_path)
    with pytest.raises(UserError, match="needs no download"):
        get("digits", tmp_path)
