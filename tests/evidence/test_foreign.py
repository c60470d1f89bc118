"""A certificate from somewhere else may hold anything: it is refused in words, and leads nowhere."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fupareto.errors import UserError
from fupareto.evidence import FAILED, certify, compare, describe, load, reading, schema, verify

from .conftest import failures, rewrite

HASH = 64 * "0"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"{}",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b"null",
        b'{"format": 2}',
        b"PK\x03\x04",
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"a":' * 100 + b"1" + b"}" * 100,
        b"[" * 200000,
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": ' + b"9" * 400 + b"}",
        b'{"a": "\\ud800"}',
    ],
)
def test_files_that_are_no_certificate(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(data)
    for read in (load, verify):
        with pytest.raises(UserError, match=str(path)):
            read(path)


def test_things_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**40)
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "large", "loop", "", "nowhere", "a\0b", 300 * "x"):
        with pytest.raises(UserError, match="cannot read"):
            verify(tmp_path / name)
    with pytest.raises(UserError, match="not a file"):
        verify(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("format", 1, "certificate of format 1; this version reads format 2"),
        ("format", "1", "format"),
        ("format", True, "format"),
        ("files", {"../summary.json": HASH}, "files"),
        ("files", {"/etc/passwd": HASH}, "files"),
        ("files", {"checkpoint/state.safetensors": HASH}, "files"),
        ("files", {"C:\\x": HASH}, "files"),
        ("files", {"summary.json": "abc"}, "files"),
        ("files", {"summary.json": HASH + "\n"}, "files"),
        ("files", [], "files"),
        ("request", {"clients": "a"}, "request"),
        ("request", {}, "request"),
        ("summary", {}, "summary"),
        ("summary", None, "summary"),
        ("audit", [], "audit"),
        ("status", "forgotten", "status"),
        ("parts", [HASH], "parts"),
        ("digest", None, "digest"),
        ("digest", HASH.upper() + "A", "digest"),
        ("kept", {"stage": "../../x", "file": "../x", "sha256": HASH, "weights": HASH, "layout": HASH}, "kept"),
        ("federation", {"clients": [1], "model": "m", "data": None}, "federation"),
        ("signature\x1b[2J", "x", r"signature\\x1b"),
    ],
)
def test_wrong_values_are_named(run: Path, part: str, value: Any, says: str) -> None:
    rewrite(run / "certificate.json", **{part: value})
    with pytest.raises(UserError, match=says) as caught:
        verify(run / "certificate.json")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("key", schema.ORDER)
def test_a_missing_key_is_named(run: Path, key: str) -> None:
    path = run / "certificate.json"
    content = load(path)
    del content[key]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"{key}: Field required"):
        verify(path)


@pytest.mark.parametrize(
    "hint",
    ["../first/c.json", "/etc/passwd", "..", "", ".", "a/b/c.json", "a/../c.json", "a\\c.json", "C:c.json", "a//c.json",
     "\\\\host\\c.json", "a/", "./c.json", "c\n.json", "c\0.json", 7],
)  # fmt: skip
def test_a_hint_leads_nowhere_else(run: Path, hint: Any) -> None:
    rewrite(run / "certificate.json", previous={"sha256": HASH, "hint": hint, "start": "same", "forgotten": []})
    with pytest.raises(UserError, match=r"previous\.hint"):
        verify(run / "certificate.json")


@pytest.mark.parametrize("hint", ["läufe/2026-01-01T10:00.json", "c.json", None])
def test_plain_hints(run: Path, hint: str | None) -> None:
    rewrite(run / "certificate.json", previous={"sha256": HASH, "hint": hint, "start": "same", "forgotten": []})
    assert failures(run / "certificate.json").keys() == {"previous", "position"}  # their own SHA-256


def test_a_directory_whose_name_is_no_hint(runs: Path) -> None:
    odd = (runs / "first").rename(runs / "a\\b")
    certify(runs / "second", previous=certify(odd))
    assert load(runs / "second/certificate.json")["previous"]["hint"] is None


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a":' * 5000, b"a = " + b"[" * 5000, b"\xff", b'{"a": NaN}'])
@pytest.mark.parametrize("name", [n for n in schema.FILES if n not in ("retrained.safetensors", "earlier.json")])
def test_files_of_the_run_that_hold_anything(run: Path, name: str, data: bytes) -> None:
    (run / name).write_bytes(data)
    assert name in failures(run / "certificate.json")


def test_files_of_the_run_that_are_none(run: Path) -> None:
    for name in ("summary.json", "recovered.safetensors"):
        (run / name).unlink()
    os.mkfifo(run / "summary.json")
    (run / "recovered.safetensors").symlink_to("/dev/zero")
    found = {f.about: f.level for f in verify(run / "certificate.json")}
    assert found["summary.json"] == found["recovered.safetensors"] == "not checked"


texts = st.text(st.characters(codec="utf-8"), max_size=5)
numbers = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_anywhere_is_refused_or_found(run: Path, data: st.DataObject) -> None:
    """Even if the certificate is sealed again, no value makes the check itself fail."""
    content = load(run / "certificate.json")
    place: Any = {key: value for key, value in content.items() if key not in ("parts", "digest")}
    sealed = place
    first = key = data.draw(st.sampled_from(sorted(place)))
    while isinstance(place[key], dict) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place)))
    value = data.draw(json_values)
    same = reading.canonical(value) == reading.canonical(place[key])
    place[key] = value
    changed = run / "changed.json"
    changed.write_bytes(schema.render(schema.seal(sealed)))
    try:
        found = verify(changed, again=(content["summary"], content["audit"]))
        describe(load(changed)).encode()
    except UserError:
        return
    free = first in ("created", "code", "requests") or same  # nothing else in the run tells: the signature does
    assert free or any(f.level == FAILED for f in found)
    assert compare(load(changed), content["summary"])
