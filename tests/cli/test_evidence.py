"""The audit, the certificate and its verification, from the command line."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manifests import relist

from .commands import files
from .conftest import Call

Mistake = Callable[..., str]
QUIET = ("--quiet",)
REFUTED, OPEN = ("--fail-on", "refuted"), ("--fail-on", "open")


@pytest.fixture
def run(small: Path, tmp_path: Path) -> Path:
    """A copy of the unlearning run, to be changed."""
    shutil.copytree(small / "forgotten", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No report is drawn; that takes longer than these commands."""
    monkeypatch.setattr("fupareto.cli.common.report", lambda run: run.path / "report.html")


def audit_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "audit.json").read_text())
    return found


def test_unlearning_ends_with_an_audit(small: Path) -> None:
    found = audit_of(small / "forgotten")
    summary = json.loads((small / "forgotten/summary.json").read_text())
    assert (found["tier"], found["truth"], found["relearning"]) == (1, None, None)
    for stage, values in summary["stages"].items():
        told = found["membership"][stage]
        assert set(told["clients"]) == set(summary["forget"])
        assert values["mia_auc"] == told["mean"]["confidence"]["auc"]
        for client in told["clients"].values():
            delta = {"delta"} if stage != "initial" else set()
            assert set(client["attacks"]) == {"confidence", "loss", "margin", "entropy"} | delta
            assert all(0 <= a["low"] <= a["auc"] <= a["high"] <= 1 for a in client["attacks"].values())
    assert len(found["exclusivity"]["clients"]) == 3
    assert found["exclusivity"]["conflicts"]
    open_ = {c["name"] for c in found["verdict"]["checks"] if c["result"] == "open"}
    assert {"alike", "removed", "lasting"} <= open_
    assert found["dormancy"] is None  # the run had fewer rounds than that takes


def test_an_attack_of_your_own(small: Path) -> None:
    script = Path(__file__).parents[2] / "examples/attack_of_your_own.py"
    done = subprocess.run([sys.executable, script, "forgotten"], cwd=small, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    summary = json.loads((small / "forgotten/summary.json").read_text())
    told = json.loads(done.stdout)["forgotten"]
    assert list(told) == ["initial", summary["final"]]
    for aucs in told.values():
        assert list(aucs) == summary["forget"]
        assert all(0 <= auc <= 1 for auc in aucs.values())


def test_an_attack_of_your_own_without_a_run(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples/attack_of_your_own.py"
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout).values()
    initial, forgotten = told.values()  # the model before and the one that is kept
    assert initial.keys() == forgotten.keys() != set()
    assert all(0 <= auc <= 1 for aucs in told.values() for auc in aucs.values())
    assert list(tmp_path.iterdir()) == []


def test_auditing_again_changes_nothing_but_the_time(call: Call, run: Path) -> None:
    before = audit_of(run)
    assert call("audit", run, *QUIET).code == 0
    assert audit_of(run) | {"created": ""} == before | {"created": ""}


def test_retraining_adds_the_truth_and_is_kept(call: Call, run: Path) -> None:
    ended = call("audit", run, "--retrain", *QUIET)
    assert ended.code == 0
    found = audit_of(run)
    assert found["truth"]["rounds"] == 6  # as many as the training had
    assert "retrained" in found["membership"]
    assert set(found["truth"]["stages"]) == {"initial", "unlearned", "recovered"}
    final = json.loads((run / "summary.json").read_text())["final"]
    assert found["relearning"]["models"].keys() == {"initial", final, "retrained"}
    assert found["way"]["relearning"]["models"].keys() == {final}
    kept = files(run / "retrained")
    assert call("audit", run, *QUIET).code == 0
    assert audit_of(run)["truth"] == found["truth"]
    assert files(run / "retrained") == kept
    for check in found["verdict"]["checks"]:
        assert f"{check['result']:8} {check['claim']}: {check['text']}" in ended.out
    assert "none of them shows that anybody's data were deleted" in ended.out
    other = run.with_name("other")
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("retrained"))
    assert call("audit", other, "--reference", run / "retrained", *QUIET).code == 0
    assert audit_of(other)["truth"] == found["truth"]


def test_thresholds_are_the_users(call: Call, run: Path) -> None:
    assert call("audit", run, "--threshold", "asr=1", "--threshold", "leak=0.5", *QUIET).code == 0
    found = audit_of(run)
    assert (found["thresholds"]["asr"], found["thresholds"]["leak"]) == (1, 0.5)
    assert next(c for c in found["verdict"]["checks"] if c["name"] == "private")["result"] == "shown"


def test_audit_mistakes(mistake: Mistake, small: Path, tmp_path: Path) -> None:
    run = small / "forgotten"
    mistake("audit", run, "--threshold", "asr", says=("--threshold takes key=value",))
    mistake("audit", run, "--threshold", "asr=3", says=("between 0 and 1",))
    mistake("audit", run, "--threshold", "nonsense=0.5", says=("the threshold 'nonsense' is unknown", "relearning"))
    mistake("audit", run, "--reference", "nowhere", says=("no run directory nowhere",))
    mistake("audit", run, "--reference", run, says=("is not a finished run of a retraining",))
    mistake("audit", run, "--tier", "3", "--shadows", "5", says=("multiple of 4",))
    mistake("audit", run, "--shadows", "4", says=("--shadows 4 needs --tier 2 or 3",))
    for option in (("--tier", "2"), ("--dormancy", "3"), ("--threshold", "asr=0.02"), ("--retrain",)):
        mistake("audit", small / "trained", *option, says=("forgot nothing",))
    mistake("audit", run, "--tier", "4", says=("--tier",))
    mistake("audit", run, "--dormancy", "-1", says=("--dormancy",))
    mistake("audit", run, "--retrain", "3", says=("--retrain",))
    three = [part for _ in range(3) for part in ("--reference", run)]
    mistake("audit", run, *three, says=("at most 2 retrained models",))


def test_two_retrained_models_say_how_far_they_differ(call: Call, run: Path) -> None:
    ended = call("audit", run, "--retrain", "2", "--dormancy", "3", *QUIET)
    assert ended.code == 0
    assert "later" in ended.out
    found = audit_of(run)
    assert found["truth"]["stages"]["retrained-2"]["divergence"] > 0
    assert found["dormancy"]["rounds"] == 3
    assert found["dormancy"]["models"].keys() == found["relearning"]["models"].keys()
    for own in found["way"].values():
        assert own["spread"] is not None
    assert call("audit", run, "--dormancy", "3", *QUIET).code == 0  # both are found again
    assert audit_of(run) | {"created": ""} == found | {"created": ""}
    assert call("certify", run).code == 0
    again = call("verify", run / "certificate.json", "--audit", *QUIET)
    assert (again.code, ", 0 failed, " in again.out) == (0, True)
    other = run.with_name("other")
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("retrained*", "certificate.json"))
    pair = [part for name in ("retrained", "retrained-2") for part in ("--reference", run / name)]
    assert call("audit", other, *pair, "--dormancy", "0", *QUIET).code == 0
    assert audit_of(other)["truth"] == found["truth"]
    assert audit_of(other)["dormancy"] is None


def test_a_certified_audit_of_an_earlier_format_is_not_compared(call: Call, run: Path) -> None:
    found = audit_of(run) | {"format": 1, "thresholds": {"divergence": 0.1}}
    (run / "audit.json").write_text(json.dumps(found, indent=2) + "\n")
    relist(run)
    assert call("certify", run).code == 0
    again = call("verify", run / "certificate.json", "--audit", *QUIET)
    assert (again.code, ", 0 failed, " in again.out) == (0, True)
    assert "format 1 is certified" in again.out
    assert "use the version that made it" in again.out


def test_a_certificate_is_written_and_found_right(call: Call, run: Path) -> None:
    ended = call("certify", run)
    assert ended.code == 0
    assert f"Certificate: {run / 'certificate.json'}" in ended.out
    before = files(run)
    found = call("verify", run / "certificate.json")
    assert (found.code, ", 0 failed, " in found.out) == (0, True)
    again = call("verify", run / "certificate.json", "--audit", *QUIET)
    assert (again.code, ", 0 failed, " in again.out) == (0, True)
    assert files(run) == before
    refused = call("audit", run, *QUIET)
    assert (refused.code, "has a certificate" in refused.err) == (2, True)
    assert files(run) == before


def test_a_receipt_is_signed_by_the_clients_own_key(call: Call, run: Path, tmp_path: Path) -> None:
    client, other = json.loads((run / "summary.json").read_text())["forget"]
    for name in ("operator", f"client-{client}", f"client-{other}"):
        assert call("keys", "make", name, "--out", tmp_path / "keys").code == 0
    assert call("certify", run, "--key", tmp_path / "keys/operator.key").code == 0
    before = files(run)
    for name in ("operator", f"client-{other}"):
        ended = call("attest", run, "--client", client, "--key", tmp_path / f"keys/{name}.key")
        assert (ended.code, files(run) == before) == (2, True)
        assert f"make that key with: fupareto keys make client-{client}" in ended.err
    foreign = tmp_path / "id_ed25519"  # as OpenSSH names keys; whose it is, the verifier's file says
    shutil.copy(tmp_path / f"keys/client-{client}.key", foreign)
    for key in (tmp_path / f"keys/client-{client}.key", foreign):
        ended = call("attest", run, "--client", client, "--key", key)
        assert (ended.code, f"as client-{client}.pub" in ended.err) == (0, key == foreign)
        found = call("verify", run, "--trusted", tmp_path / "keys")
        assert (found.code, f"Client {client} measured the model" in found.out) == (0, True)


def test_a_run_directory_stands_for_its_certificate(call: Call, mistake: Mistake, run: Path) -> None:
    mistake("verify", run, says=(f"has no certificate.json; write it first: fupareto certify {run}",))
    assert call("certify", run).code == 0
    by_run, by_file = call("verify", run), call("verify", run / "certificate.json")
    assert (by_run.code, by_run.out) == (0, by_file.out)


def test_every_output_carries_the_tally(call: Call, run: Path) -> None:
    ended = call("audit", run, *QUIET)
    tally = json.loads((run / "summary.json").read_text())["checks"]
    made = [check["result"] for check in audit_of(run)["verdict"]["checks"]]
    assert tally == {result: made.count(result) for result in ("shown", "open", "refuted")}
    words = "{shown} shown, {open} open, {refuted} refuted".format(**tally)
    outputs = [ended.out, call("certify", run).out, call("verify", run).out, call("compare", run).out]
    assert all(words in said for said in outputs)
    told = [json.loads(call(command, run, "--json").out) for command in ("certify", "verify", "compare")]
    assert words in told[0]["verdict"]
    assert (told[0]["summary"]["checks"], told[1]["checks"], told[2][str(run)]["checks"]) == (tally, tally, tally)
    assert words in told[1]["verdict"]
    assert words in told[2][str(run)]["verdict"]
    assert {"level", "about", "text"} == told[1]["findings"][0].keys()


def test_checks_can_set_the_exit_code(call: Call, run: Path) -> None:
    def codes(*options: str) -> list[int]:
        return [call("audit", run, *options, *fail, *QUIET).code for fail in ((), REFUTED, OPEN)]

    tally = json.loads((run / "summary.json").read_text())["checks"]
    assert codes() == [0, 3 if tally["refuted"] else 0, 3]  # without a retrained model, two checks are open
    assert codes("--threshold", "asr=0") == [0, 3, 3]  # some tries always succeed here
    ended = call("audit", run, "--threshold", "asr=0", "--json", *REFUTED, *QUIET)
    assert (ended.code, json.loads(ended.out)["checks"]["refuted"] > 0) == (3, True)
    assert call("certify", run).code == 0
    assert [call("verify", run, *fail).code for fail in ((), REFUTED, OPEN)] == [0, 3, 3]
    (run / "recovered.safetensors").write_bytes(b"")
    assert call("verify", run, *REFUTED).code == 1  # a certificate that does not hold comes first
    assert call("audit", run, "--fail-on", "shown").code == 2


@pytest.mark.parametrize("name", ["recovered.safetensors", "summary.json", "rounds.jsonl", "certificate.json"])
def test_a_changed_byte_is_named(call: Call, run: Path, name: str) -> None:
    assert call("certify", run).code == 0
    data = bytearray((run / name).read_bytes())
    data[-5] ^= 1
    (run / name).write_bytes(data)
    ended = call("verify", run / "certificate.json")
    assert ended.code in (1, 2)
    assert name in ended.out + ended.err
    assert "Traceback" not in ended.err


def test_numbers_that_cannot_be_measured_again_are_named(call: Call, run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    summary["stages"]["unlearned"]["r_acc"] -= 0.25
    (run / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    relist(run)
    assert call("certify", run).code == 0  # the files agree with each other
    assert call("verify", run / "certificate.json").code == 0
    ended = call("verify", run / "certificate.json", "--audit", *QUIET)
    assert ended.code == 1
    assert "stages.unlearned.r_acc" in ended.out


def test_a_second_request_follows_the_first(call: Call, run: Path, tmp_path: Path) -> None:
    assert call("certify", run).code == 0
    left = json.loads((run / "request.json").read_text())["clients"]
    stays = next(i for i in "01234" if i not in left)
    second = tmp_path / "second"
    options = ("--set", "rounds=2", "--set", "recovery_rounds=1", *QUIET)
    assert call("unlearn", run, "--clients", stays, "--out", second, *options).code == 0
    summary = json.loads((second / "summary.json").read_text())
    assert summary["forget"] == [stays]
    assert set(summary["stages"]["initial"]["clients"]) == set("01234") - set(left)
    final = json.loads((run / "summary.json").read_text())["final"]
    assert tensors(second / "initial.safetensors") == tensors(run / f"{final}.safetensors")
    assert call("certify", second, "--previous", run / "certificate.json").code == 0
    ended = call("verify", second / "certificate.json")
    assert (ended.code, ", 0 failed, " in ended.out) == (0, True)
    held = json.loads((second / "certificate.json").read_text())
    assert (held["previous"]["start"], sorted(held["previous"]["forgotten"])) == ("kept", sorted(left))
    assert call("unlearn", run, "--clients", stays, "--out", second, *options, "--resume").code == 0


def tensors(path: Path) -> dict[str, list[float]]:
    import safetensors.torch

    return {name: t.flatten().tolist() for name, t in safetensors.torch.load(path.read_bytes()).items()}
