"""Keys and signatures: standard forms, checked by independent means; nothing secret is printed."""

import base64
import hashlib
import json
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from fupareto.errors import UserError
from fupareto.evidence import Against, certify, keys, signing, verify

from .conftest import failed


@pytest.fixture
def operator(tmp_path: Path) -> keys.Signer:
    keys.make("operator", tmp_path / "keys")
    return keys.signer(tmp_path / "keys/operator.key")


def level(path: Path, about: str, trusted: Path) -> str:
    found = verify(path, against=Against(trusted=keys.trusted(trusted)))
    return next(f.level for f in found if f.about == about)


def test_a_private_key_is_for_its_owner_alone(operator: keys.Signer, tmp_path: Path) -> None:
    path = tmp_path / "keys/operator.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(UserError, match="already exists; a key is never replaced"):
        keys.make("operator", tmp_path / "keys")
    for name in ("", "../x", "a/b", ".x", "a\n"):
        with pytest.raises(UserError, match="cannot be the name of a key"):
            keys.make(name, tmp_path / "keys")


def test_a_private_key_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    keys.make("operator", tmp_path)
    (tmp_path / "operator.key").chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        keys.signer(tmp_path / "operator.key")
    (tmp_path / "operator.key").chmod(0o440)  # as services get it
    assert keys.signer(tmp_path / "operator.key").name == "operator"


def test_a_protected_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.make("safe", tmp_path, "a long secret")
    monkeypatch.delenv(keys.PASSPHRASE, raising=False)
    with pytest.raises(UserError, match=f"is protected; set {keys.PASSPHRASE}"):
        keys.signer(tmp_path / "safe.key")
    monkeypatch.setenv(keys.PASSPHRASE, "another")
    with pytest.raises(UserError, match="is not its passphrase"):
        keys.signer(tmp_path / "safe.key")
    monkeypatch.setenv(keys.PASSPHRASE, "a long secret")
    assert keys.signer(tmp_path / "safe.key").id == keys.key_id(keys.public(tmp_path / "safe.pub"))


def test_keys_of_openssh(tmp_path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "id")]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("OpenSSH is not installed")
    assert keys.signer(tmp_path / "id").id == keys.key_id(keys.public(tmp_path / "id.pub"))


def test_other_files_are_no_keys(tmp_path: Path, operator: keys.Signer) -> None:
    (tmp_path / "x.pub").write_text("hello")
    with pytest.raises(UserError, match="not a public key"):
        keys.trusted(tmp_path / "x.pub")
    with pytest.raises(UserError, match="not a private key"):
        keys.signer(tmp_path / "keys/operator.pub")
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"has no public key \(\*.pub\)"):
        keys.trusted(tmp_path / "none")


def test_the_envelope_is_dsse_and_the_statement_in_toto(run: Path, operator: keys.Signer, tmp_path: Path) -> None:
    """Check a signature by hand, from the specifications."""
    certify(run, signer=operator)
    [line] = (run / "certificate.intoto.jsonl").read_text().splitlines()
    envelope = json.loads(line)
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    message = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])
    public = load_pem_public_key((tmp_path / "keys/operator.pub").read_bytes())
    public.verify(base64.b64decode(envelope["signatures"][0]["sig"]), message)  # type: ignore[union-attr,call-arg]
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    for subject in statement["subject"]:
        assert subject["digest"]["sha256"] == hashlib.sha256((run / subject["name"]).read_bytes()).hexdigest()
    data = (run / "certificate.json").read_bytes()
    assert statement["predicate"]["certificate"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert b"PRIVATE" not in data + line.encode()


def test_who_may_sign(run: Path, operator: keys.Signer, tmp_path: Path) -> None:
    path, own = run / "certificate.json", tmp_path / "keys"
    assert failed(verify(path, against=Against(trusted=keys.trusted(own)))).keys() == {"signature"}  # not signed
    certify(run, signer=operator)
    assert level(path, "signature", own) == "ok"
    certify(run, signer=operator)  # signing again adds nothing
    assert len(signing.envelopes(path)) == 1
    keys.make("other", tmp_path / "others")
    assert level(path, "signature", tmp_path / "others") == "failed"
    keys.make("client-a", tmp_path / "clients")  # a client does not sign for the operator
    signing.bundle_of(path).unlink()
    certify(run, signer=keys.signer(tmp_path / "clients/client-a.key"))
    assert level(path, "signature", tmp_path / "clients") == "failed"


def test_a_signature_is_of_one_certificate(runs: Path, operator: keys.Signer, tmp_path: Path) -> None:
    first, other = certify(runs / "first", signer=operator), certify(runs / "other", signer=operator)
    signing.bundle_of(other).replace(signing.bundle_of(first))
    assert level(first, "signature", tmp_path / "keys") == "failed"
    for broken in ("{}", "[]", '{"payloadType": 1}', "nonsense"):
        signing.bundle_of(first).write_text(broken)
        with pytest.raises(UserError, match="intoto"):
            verify(first, against=Against(trusted=keys.trusted(tmp_path / "keys")))
