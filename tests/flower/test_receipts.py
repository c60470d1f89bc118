"""Leaving clients measure the kept model on their own nodes and sign it there; rounds are replayed over a grid."""

import json
from pathlib import Path

import pytest
import safetensors.torch

import fupareto
from federation.worlds import clients, plain, start
from fupareto import verification
from fupareto.evidence import Against, certify, keys, reading, signing, verify
from fupareto.flower import FlowerFederation, nodes
from fupareto.flower.server import serve
from fupareto.methods import FUPareto
from fupareto.parameters import Layout

from .grid import LocalGrid, app_of

METHOD = FUPareto(rounds=2, recovery_rounds=1, lr=0.3)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MEETING", 0.0)


def test_receipts_travel_as_records(tmp_path: Path) -> None:
    for name in ("client-c1", "client-c4", "operator"):
        keys.make(name, tmp_path / "keys")
    grid = LocalGrid()
    for client in clients():
        key = {"client-key": str(tmp_path / f"keys/client-{client}.key")} if client == "c1" else {}
        grid.start(app_of(plain, clients()), {"client-id": client, **key})
    flower = FlowerFederation(grid, plain(), clients=6, timeout=5.0, patience=0.0)
    result = fupareto.unlearn(flower, start(), ["c1", "c4"], METHOD, out=tmp_path / "run", attack=True)
    certificate = certify(tmp_path / "run", signer=keys.signer(tmp_path / "keys/operator.key"))
    assert verification.receipts(result) == {"c1": "signed", "c4": "the client has no key"}
    trusted = keys.trusted(tmp_path / "keys")
    found = {f.about: f.level for f in verify(certificate, against=Against(trusted=trusted))}
    assert (found["signature"], found["receipt.c1"]) == ("ok", "ok")
    [receipt] = signing.own_receipts(certificate, trusted)
    said = receipt.statement["predicate"]
    assert said["nonce"] == reading.hash_file(certificate)
    stage = json.loads((tmp_path / "run/summary.json").read_text())
    assert said["accuracy"] == pytest.approx(stage["stages"][stage["final"]]["clients"]["c1"]["accuracy"])
    assert 0 <= said["membership_auc"] <= 1
    forged = signing.envelope(receipt.statement, keys.signer(tmp_path / "keys/client-c4.key"))  # c4 signs for c1
    lines = signing.bundle_of(certificate).read_text().splitlines()
    signing.bundle_of(certificate).write_text(lines[0] + "\n" + json.dumps(forged) + "\n")
    found = {f.about: f.level for f in verify(certificate, against=Against(trusted=trusted))}
    assert found["receipts"] == "failed"


def test_a_run_config_asks_for_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fupareto.result.render", lambda *_: "<html></html>")
    for name in ("operator", "client-c1"):
        keys.make(name, tmp_path / "keys")
    monkeypatch.setenv("FUPARETO_CLIENT_KEY", str(tmp_path / "keys/client-c1.key"))
    grid = LocalGrid()
    for client in clients():
        grid.start(app_of(plain, clients()), {"client-id": client})
    safetensors.torch.save_file(Layout.of(plain()).named(start()), tmp_path / "w0.safetensors")
    config = {"forget": "c1", "options": "rounds=2 recovery_rounds=1 lr=0.3", "model": str(tmp_path / "w0.safetensors")}
    config |= {"out": str(tmp_path / "run"), "key": str(tmp_path / "keys/operator.key")}
    serve(grid, {**config, "clients": 6, "timeout": 5.0, "patience": 0.0, "certify": True}, plain)
    found = verify(tmp_path / "run/certificate.json", against=Against(trusted=keys.trusted(tmp_path / "keys")))
    levels = {f.about: f.level for f in found}
    assert (levels["signature"], levels["receipt.c1"]) == ("ok", "ok")


def test_a_run_over_a_grid_is_verified_and_replayed(tmp_path: Path) -> None:
    grid = LocalGrid()
    for client in clients():
        grid.start(app_of(plain, clients()), {"client-id": client})
    flower = FlowerFederation(grid, plain(), clients=6, timeout=5.0, patience=0.0)
    fupareto.unlearn(flower, start(), ["c1"], METHOD, out=tmp_path / "run", attack=True)
    certify(tmp_path / "run")
    for engine in (flower, fupareto.simulate(plain(), clients(), workers=1)):  # over the grid, and where the data are
        found = fupareto.verify(tmp_path / "run", engine, replay="all")
        assert [f.text for f in found if f.level == "failed"] == []
        assert {"round.1", "summary", "audit"} <= {f.about for f in found if f.level == "ok"}
