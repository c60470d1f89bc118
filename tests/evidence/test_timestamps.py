"""Timestamps of RFC 3161, from a local authority that OpenSSL runs."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fupareto.errors import UserError
from fupareto.evidence import Against, certify, timestamps, verify

pytest.importorskip("rfc3161_client")
pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="OpenSSL is not installed")

CONFIG = """
[req]
distinguished_name = dn
[dn]
[root]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign
[tsa]
extendedKeyUsage = critical, timeStamping
keyUsage = critical, digitalSignature
[own]
serial = {0}/serial
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256, sha512
ess_cert_id_alg = sha256
[tsa_section]
"""


def openssl(place: Path, *args: str) -> None:
    subprocess.run(["openssl", *args], cwd=place, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Serve an authority on loopback; return its address and its root certificate."""
    place = tmp_path_factory.mktemp("authority")
    (place / "conf").write_text(CONFIG.format(place))
    (place / "serial").write_text("01")
    common = ("-nodes", "-days", "2", "-config", "conf", "-newkey", "rsa:2048")
    openssl(
        place,
        "req",
        "-x509",
        *common,
        "-subj",
        "/CN=root",
        "-extensions",
        "root",
        "-keyout",
        "root.key",
        "-out",
        "root.pem",
    )
    openssl(place, "req", *common[:1], *common[3:], "-subj", "/CN=tsa", "-keyout", "tsa.key", "-out", "tsa.csr")
    sign = ("x509", "-req", "-in", "tsa.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-days", "2")
    openssl(place, *sign, "-extfile", "conf", "-extensions", "tsa", "-out", "tsa.pem")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            (place / "query").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            reply = ("ts", "-reply", "-queryfile", "query", "-config", "conf", "-section", "own")
            openssl(place, *reply, "-signer", "tsa.pem", "-inkey", "tsa.key", "-out", "answer")
            self.send_response(200)
            self.end_headers()
            self.wfile.write((place / "answer").read_bytes())

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", place / "root.pem"
    server.shutdown()
    thread.join()
    server.server_close()


def levels(path: Path, authorities: Path | None) -> list[tuple[str, str]]:
    found = verify(path, against=Against(authorities=authorities))
    return [(f.level, f.text) for f in found if f.about == "timestamp"]


def test_a_timestamp_holds_for_its_certificate_alone(authority: tuple[str, Path], runs: Path) -> None:
    address, root = authority
    path = certify(runs / "first")
    assert levels(path, root) == []
    timestamps.stamp(path, address)
    [(level, text)] = levels(path, root)
    assert level == "ok"
    assert "It existed at 20" in text
    assert [level for level, _ in levels(path, None)] == ["not checked"]
    other = certify(runs / "other")
    shutil.copy(timestamps.stamp_of(path), timestamps.stamp_of(other))
    assert [level for level, _ in levels(other, root)] == ["failed"]


def test_mistakes(authority: tuple[str, Path], runs: Path) -> None:
    path = certify(runs / "first")
    with pytest.raises(UserError, match="begins with https://"):
        timestamps.stamp(path, "file:///etc/passwd")
    with pytest.raises(UserError, match=r"no timestamp from http://127\.0\.0\.1:9"):
        timestamps.stamp(path, "http://127.0.0.1:9")
    assert not timestamps.stamp_of(path).exists()
