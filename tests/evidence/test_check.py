"""Whatever is changed after certifying is found, and named."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fupareto.errors import UserError
from fupareto.evidence import NOT_CHECKED, OK, certify, load, schema, verify

from .conftest import failures, rewrite

FILES = [name for name in schema.FILES if name not in ("retrained.safetensors", "earlier.json")]


def levels(path: Path, *args: Any) -> dict[str, str]:
    return {f.about: f.level for f in verify(path, *args)}


def test_everything_is_looked_at(run: Path) -> None:
    found = levels(run / "certificate.json")
    unchecked = {about for about, level in found.items() if level == NOT_CHECKED}
    assert unchecked == {"numbers", "signature", "position", "method", "truth"}
    assert {*FILES, "certificate", "copies", "previous", "models", "rounds"} == {
        about for about, level in found.items() if level == OK
    }


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("where", [0, 0.5, 1])
def test_a_changed_byte_of_a_file_is_named(run: Path, name: str, where: float) -> None:
    data = bytearray((run / name).read_bytes())
    data[int(where * (len(data) - 1))] ^= 1
    (run / name).write_bytes(data)
    found = failures(run / "certificate.json")
    assert str(run / name) in found[name]
    parts = {part for part, source in schema.DOCUMENTS.items() if source == name}
    kept = load(run / "certificate.json")["kept"]["file"]
    parts |= {part for part, source in (("start", "initial.safetensors"), ("kept", kept)) if source == name}
    stage = name.removesuffix(".safetensors")
    assert found.keys() - {name} <= {*parts, "rounds", f"models.{stage}", "models.unlearned", "models.recovered"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_made_longer_is_named(run: Path, name: str) -> None:
    with (run / name).open("ab") as file:
        file.write(b"\n")
    assert name in failures(run / "certificate.json")


def spoil(value: Any) -> Any:
    """Change a JSON value somewhere, in a way that its shape allows where that can be."""
    if isinstance(value, dict) and value:
        key = list(value)[-1]
        return {**value, key: spoil(value[key])}
    if isinstance(value, list):
        return [*value[:-1], spoil(value[-1])] if value else ["x"]
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    return value + 1 if isinstance(value, int | float) else {"x": 1}  # for null, or nothing


@pytest.mark.parametrize("part", schema.ORDER)
def test_a_changed_part_of_the_certificate_is_named(run: Path, part: str) -> None:
    path = run / "certificate.json"
    rewrite(path, **{part: spoil(load(path)[part])})
    try:
        found = failures(path)
    except UserError as error:
        assert part in str(error)  # noqa: PT017
        assert part in ("format", "status", "previous", "requests", "references")  # what they may hold is fixed
        return
    named = part if part != "parts" else list(load(path)["parts"])[-1]
    assert named in found


@pytest.mark.parametrize("part", schema.ORDER[:-2])
def test_a_changed_digest_of_a_part_is_named(run: Path, part: str) -> None:
    path = run / "certificate.json"
    rewrite(path, parts={**load(path)["parts"], part: 64 * "0"})
    assert failures(path).keys() == {part}


@pytest.fixture(scope="session")
def certified(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("certified") / "run"
    shutil.copytree(made / "first", place)
    return certify(place)


@given(st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changed_byte_of_the_certificate_is_found(certified: Path, data: st.DataObject) -> None:
    whole = certified.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != whole[at]))
    changed = certified.with_name("changed.json")
    changed.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
    try:
        assert failures(changed)
    except UserError as error:
        assert str(changed) in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + " ",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: json.dumps(json.loads(text)),
        lambda text: json.dumps(json.loads(text), indent=2) + "\n",  # the ü of the audit as \u00fc
        lambda text: text.replace('  "verdict"', '  "verdict": "Deleted everywhere.",\n  "verdict"', 1),
        lambda text: text.replace("200,", "2e2,", 1),
    ],
    ids=["space", "line ends", "one line", "escapes", "a key twice", "another way to write a number"],
)
def test_other_forms_of_the_same_are_found(run: Path, change: Any) -> None:
    path = run / "certificate.json"
    path.write_bytes(change(path.read_text()).encode())
    assert "certificate" in failures(path)


def reseal(path: Path, **changes: Any) -> None:
    """Change a certificate as somebody does who knows how it is sealed."""
    content = {**load(path), **changes}
    sealed = schema.seal({key: content[key] for key in content if key not in ("parts", "digest")})
    path.write_bytes(schema.render(sealed))


def without(part: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in part.items() if k != key}


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("about", lambda c: "Proves deletion."),
        ("status", lambda c: "unverified"),
        ("verdict", lambda c: "Forgotten."),
        ("request", lambda c: {**c["request"], "clients": ["a", "b"]}),
        ("federation", lambda c: {**c["federation"], "clients": ["a", "b"]}),
        ("start", lambda c: c["kept"]),
        ("start", lambda c: {**c["start"], "weights": 64 * "0"}),
        ("kept", lambda c: c["start"]),
        ("kept", lambda c: {**c["kept"], "file": "summary.json", "sha256": c["files"]["summary.json"]}),
        ("files", lambda c: without(c["files"], "unlearned.safetensors")),
        ("files", lambda c: without(c["files"], "request.json")),
        ("audit", lambda c: None),
        ("summary", lambda c: {**c["summary"], "cost": {}}),
        ("config", lambda c: {**c["config"], "seed": 5}),
    ],
)
def test_a_certificate_that_was_sealed_again(run: Path, part: str, change: Any) -> None:
    path = run / "certificate.json"
    reseal(path, **{part: change(load(path))})
    assert part in failures(path)


def test_a_tally_that_its_checks_contradict(run: Path, tmp_path: Path) -> None:
    path = run / "certificate.json"
    reseal(path, summary={**load(path)["summary"], "checks": {"shown": 6, "open": 0, "refuted": 0}})
    (tmp_path / "empty").mkdir()
    assert {"summary", "verdict"} == failures(path, tmp_path / "empty").keys()


def test_differences_between_copy_and_file_are_placed(run: Path) -> None:
    path = run / "certificate.json"
    summary = load(path)["summary"]
    summary["stages"]["recovered"]["r_acc"] = 1.5
    summary["stages"]["recovered"]["\x1b"] = 1
    reseal(path, summary=summary)
    text = failures(path)["summary"]
    assert "summary.stages.recovered.r_acc, summary.stages.recovered.'\\x1b'" in text


def test_what_is_not_there_is_not_checked(run: Path, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    path = tmp_path / "alone/certificate.json"
    shutil.copy(run / "certificate.json", path)
    found = levels(path)
    assert {found[name] for name in FILES} == {NOT_CHECKED}
    assert found["position"] == NOT_CHECKED
    assert "failed" not in found.values()
    assert levels(path, run) == levels(run / "certificate.json")
    with pytest.raises(UserError, match="there is no run directory"):
        verify(path, tmp_path / "nowhere")


def test_what_came_later_is_not_certified(runs: Path) -> None:
    path = certify(runs / "other")
    (runs / "other/audit.json").write_text("{}")
    assert levels(path)["audit.json"] == NOT_CHECKED


def test_a_run_may_be_moved(run: Path, tmp_path: Path) -> None:
    moved = run.rename(tmp_path / "elsewhere")
    assert failures(moved / "certificate.json") == {}


def test_verifying_changes_nothing_and_needs_no_torch_and_little_time(run: Path) -> None:
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*") if p.is_file()}
    code = (
        "import sys, time; from pathlib import Path; from fupareto.evidence import verify\n"
        "print(*{f.level for f in verify(Path(sys.argv[1]))}, 'torch' in sys.modules, sep=', ')\n"
        "assert time.process_time() < 5"
    )
    command = [sys.executable, "-c", code, str(run / "certificate.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.strip().split(", ")) == ["False", "not checked", "ok"]
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*") if p.is_file()} == before
