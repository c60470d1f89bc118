"""What a certificate says, when it is refused, and that none is replaced."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import fupareto
from fupareto import config, experiment
from fupareto.errors import UserError
from fupareto.evidence import certify, describe, load, schema, verify
from fupareto.evidence.issue import draw
from fupareto.federation import Request
from fupareto.federation.request import VIRTUAL
from fupareto.tally import with_tally
from manifests import relist

from .conftest import AUDIT, METHOD, failures, federation, model, rewrite


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_it_says(run: Path) -> None:
    found = load(run / "certificate.json")
    names = {"config.toml", "request.json", "rounds.jsonl", "summary.json", "audit.json"}
    assert found["files"] == {
        n: sha256(run / n) for n in (*names, *(f"{s}.safetensors" for s in found["summary"]["stages"]))
    }
    summary = json.loads((run / "summary.json").read_text())
    assert found["summary"] == summary
    assert found["audit"] == AUDIT
    assert found["request"] == json.loads((run / "request.json").read_text())
    assert found["request"]["received"]
    assert found["config"]["method"]["name"] == "fupareto"
    assert found["status"] == "complete"
    assert found["verdict"] == with_tally(summary["verdict"], {"shown": 1, "open": 0, "refuted": 0})
    assert found["kept"]["stage"] == summary["final"]
    assert found["kept"]["sha256"] == sha256(run / f"{summary['final']}.safetensors")
    assert found["federation"] == {"clients": ["a", "b", "c", "d"], "model": "yours", "data": None}
    assert found["previous"] is None
    assert found["created"].endswith("+00:00")
    assert tuple(found) == schema.ORDER
    assert failures(run / "certificate.json") == {}


def test_its_digest_is_that_of_everything_else(run: Path) -> None:
    found = json.loads((run / "certificate.json").read_text(encoding="utf-8"))
    digest, parts = found.pop("digest"), found["parts"]

    def canonical(value: Any) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    assert digest == hashlib.sha256(canonical(found)).hexdigest()
    del found["parts"]
    assert parts == {key: hashlib.sha256(canonical(value)).hexdigest() for key, value in found.items()}


def test_in_a_few_lines(run: Path) -> None:
    found = load(run / "certificate.json")
    words = describe(found)
    assert "To be forgotten: clients a" in words
    assert found["kept"]["sha256"] in words
    assert found["verdict"] in words
    assert "\x1b" not in describe({**found, "verdict": "\x1b[32mall is well"})


def test_the_same_weights_are_recognised_in_another_file(made: Path) -> None:
    first, second = (draw(made / run) for run in ("first", "second"))
    assert first["kept"]["weights"] == second["start"]["weights"]
    assert first["kept"]["layout"] == second["start"]["layout"]
    assert first["kept"]["sha256"] != second["start"]["sha256"]
    assert first["kept"]["weights"] != first["start"]["weights"]


def test_a_run_of_the_command_line(tmp_path: Path) -> None:
    raw = {
        "data": {"samples": 200},
        "partition": {"kind": "iid", "clients": 4},
        "train": {"rounds": 1},
        "unlearn": {"options": {"rounds": 1, "recovery_rounds": 1}},
    }
    settings = config.validate(raw, "test")
    experiment.train(settings, tmp_path / "a")
    with pytest.raises(UserError, match=r"a training run, which has no request.* fupareto unlearn \S*/a --clients"):
        certify(tmp_path / "a")
    experiment.unlearn(tmp_path / "a", tmp_path / "b", request=Request(("1",)))
    found = load(certify(tmp_path / "b"))
    assert found["federation"]["clients"] == ["0", "1", "2", "3"]
    assert found["federation"]["data"]["partition"]["clients"] == 4
    assert "torch" in found["config"]["versions"]
    assert found["start"]["sha256"] == sha256(tmp_path / "a/initial.safetensors")
    (tmp_path / "b/certificate.json").unlink()
    (tmp_path / "b/summary.json").unlink()
    relist(tmp_path / "b")
    with pytest.raises(UserError, match=r"finish it, .*: fupareto unlearn \S*/a --out \S*/b --resume"):
        certify(tmp_path / "b")


def test_parts_of_clients_are_their_clients(tmp_path: Path) -> None:
    assert schema.VIRTUAL == VIRTUAL
    fupareto.unlearn(federation(*"abc"), model(), Request(classes=(1,)), METHOD, out=tmp_path / "run")
    found = load(certify(tmp_path / "run"))
    assert found["federation"]["clients"] == ["a", "b", "c"]
    assert found["request"]["classes"] == [1]
    assert failures(tmp_path / "run/certificate.json") == {}


def test_without_an_audit(runs: Path) -> None:
    path = certify(runs / "other")
    assert load(path)["audit"] is None
    assert "audit.json" not in load(path)["files"]
    assert failures(path) == {}


def test_what_was_not_verified_is_not_claimed(run: Path) -> None:
    (run / "certificate.json").unlink()
    rewrite(run / "summary.json", status="unverified", verdict="The model is right on 30.0%.", missing={"a": "late"})
    path = certify(run)
    assert load(path)["status"] == "unverified"
    assert load(path)["verdict"].startswith("NOT VERIFIED: ")
    assert "NOT VERIFIED" in describe(load(path))


def test_settings_that_json_does_not_have(runs: Path) -> None:
    with (runs / "other/config.toml").open("a") as file:
        file.write("\n[more]\nlimit = inf\nday = 2026-01-01\n")
    relist(runs / "other")
    path = certify(runs / "other")
    assert load(path)["config"]["more"] == {"limit": "Infinity", "day": "2026-01-01"}
    assert failures(path) == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda run: (run / "summary.json").unlink(), r"call result.audit\(\) there"),
        (lambda run: (run / "request.json").unlink(), "request.json: No such file"),
        (lambda run: (run / "recovered.safetensors").unlink(), "recovered.safetensors: No such file"),
        (lambda run: (run / "initial.safetensors").write_bytes(b"\x02" + 7 * b"\0" + b"[]"), "initial.* is damaged"),
        (lambda run: (run / "initial.safetensors").write_bytes(8 * b"\xff"), "header is too long"),
        (
            lambda run: rewrite(run / "summary.json", status="fine"),
            r"summary.json .*status: .*fupareto audit \S*/other",
        ),
        (lambda run: rewrite(run / "summary.json", final="../x"), r"summary.json .*final"),
        (lambda run: rewrite(run / "request.json", clients=["d"]), "do not match each other: 'request'"),
        (lambda run: (run / "audit.json").write_text("[1"), "audit.json is damaged"),
        (lambda run: (run / "config.toml").unlink(), "not a run directory"),
    ],
)
def test_refused(runs: Path, change: Any, says: str) -> None:
    change(runs / "other")
    if (runs / "other/config.toml").exists():
        relist(runs / "other")
    with pytest.raises(UserError, match=says):
        certify(runs / "other")
    assert not (runs / "other/certificate.json").exists()


def test_one_that_is_there_and_true_is_left_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "certificate.json").read_bytes()
    said: list[str] = []
    assert certify(run, say=said.append) == run / "certificate.json"
    assert said == [f"{run / 'certificate.json'} already exists, and still holds."]
    assert (run / "certificate.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("summary.json", lambda path: rewrite(path, name="x"), "does not match the run in files, summary;"),
        ("audit.json", lambda path: path.unlink(), "does not match the run in verdict, files, audit;"),
        ("certificate.json", lambda path: rewrite(path, created="x"), "does not match the run in created, dates;"),
        ("certificate.json", lambda path: path.write_text("my notes"), "is not a valid certificate"),
    ],
)
def test_one_that_is_there_and_not_true_is_not_replaced(run: Path, name: str, change: Any, says: str) -> None:
    change(run / name)
    relist(run)
    before = (run / "certificate.json").read_bytes()
    with pytest.raises(UserError, match=f"already exists.*{says}.*move it away"):
        certify(run)
    assert (run / "certificate.json").read_bytes() == before


def test_no_other_file_is_replaced(run: Path) -> None:
    before = (run / "summary.json").read_bytes()
    with pytest.raises(UserError, match="is not a valid certificate"):
        certify(run, run / "summary.json")
    assert (run / "summary.json").read_bytes() == before


def test_written_elsewhere(runs: Path, tmp_path: Path) -> None:
    assert certify(runs / "other", tmp_path) == tmp_path / "certificate.json"
    path = certify(runs / "other", tmp_path / "c.json")
    assert failures(path, runs / "other") == {}
    assert not any(f.level == "ok" and f.about.endswith(".safetensors") for f in verify(path))
    with pytest.raises(UserError, match=r"cannot write .*No such file"):
        certify(runs / "other", tmp_path / "nowhere/c.json")
