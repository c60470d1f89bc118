"""Bounded reading: what is allowed is read as the standard library reads it, and everything else is refused at once."""

import json
import os
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fupareto import documents
from fupareto.errors import UserError

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(-1e308, 1e308) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(plain)
def test_allowed_json_is_read_as_it_was_written(value: Any) -> None:
    assert documents.parse_json(json.dumps(value)) == value
    assert documents.parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_anything_else_is_a_value_error(data: bytes) -> None:
    for parse in (documents.parse_json, documents.parse_toml):
        try:
            found = parse(data)
        except ValueError:
            continue
        json.dumps(found, default=str).encode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" * 65 + "]" * 65, "nested too deeply"),
        ("NaN", "NaN"),
        ("[-Infinity]", "-Infinity"),
        ("[1e999]", "too large"),
        (str(2**63), "too large"),
        ("9" * 5000, "limit"),
        (r'"\ud800"', "lone surrogate"),
        (r'{"\udfff": 1}', "lone surrogate"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' is there twice"),
        (b'"\xff"', "utf-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
    ],
)
def test_json_that_is_refused(text: str | bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        documents.parse_json(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = " + "[" * 100_000, "nested too deeply"),
        ("a." * 500_000 + "a = 1", "nested too deeply"),
        ('"a".' * 300_000 + "a = 1", "nested too deeply"),
        ("a." * 100 + "a = 1", "nested too deeply"),
        ("[" + "a." * 100 + "a]", "nested too deeply"),
        (f"x = {2**63}", "too large"),
        ("x = 0x" + "f" * 100_000, "too large"),
        ("x = " + "9" * 5000, "limit"),
        (b"x = '\xed\xa0\x80'", "utf-8"),
        ("#" + "x" * 2**24, "16 MB"),
    ],
)
def test_toml_that_is_refused_in_time(text: str | bytes, says: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=says):
        documents.parse_toml(text)
    assert time.process_time() - began < 3


def test_toml_that_is_allowed() -> None:
    text = 'words = "' + "One. Two. " * 60 + '"\nx = inf\n[a.b."c.d"]\ny = 9223372036854775807\n'
    assert documents.parse_toml(text) == tomllib.loads(text)


def test_only_regular_files_of_limited_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert documents.read(tmp_path / "file", 5) == b"12345"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(UserError, match=r"file: it has more than"):
        documents.read(tmp_path / "file", 4)
    for path, says in {
        tmp_path / "pipe": "a pipe or a device",
        tmp_path / "link": "a pipe or a device",
        Path("/dev/zero"): "a pipe or a device",
        tmp_path: "directory",
        tmp_path / "none": "No such file",
        tmp_path / ("x" * 300): "too long",
        tmp_path / "a\0b": "null",
    }.items():
        with pytest.raises(UserError, match=says):
            documents.read(path)


def test_home_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert documents.expand("~/x.npz") == Path("/somewhere/x.npz")
    with pytest.raises(UserError, match="no such user"):
        documents.expand("~no-such-user/x.npz")
    with pytest.raises(UserError, match="null character"):
        documents.expand("a\0b")


@pytest.mark.parametrize("values", ["ab", 3, None, {"a": 1}, ["a", 1], ["x" * 256], ["\ud800"], ["a\0"]])
def test_names_that_are_refused(values: Any) -> None:
    with pytest.raises(ValueError, match="clients"):
        documents.names(values, "clients")


@pytest.mark.parametrize("values", ["12", 3, None, [1.0], [True], ["1"], [[1]]])
def test_numbers_that_are_refused(values: Any) -> None:
    with pytest.raises(ValueError, match="rows must be a list of integers"):
        documents.numbers(values, "rows")
