"""Bench files: what a scale changes."""

from pathlib import Path

from fupareto.bench import file

BENCH = """
name = "tiny"
title = "Digits"
seeds = [21, 22]

[experiment]
request = { clients = 1 }

[[settings]]
name = "A"
experiment = { train = { rounds = 200, lr = 0.5 } }

[[methods]]
method = "renew"
label = "Renewal"

[scales.small]
reduced = "40 rounds"
experiment = { train = { rounds = 40 } }
"""


def test_a_scale_reduces_what_a_setting_varies(tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text(BENCH)
    rounds = {}
    for scale in ("full", "small"):
        cells = [*file.cells(file.load(tmp_path / "bench.toml", scale), tmp_path)]
        assert [c.seed for c in cells] == [21, 22]
        assert all(c.experiment.train.lr == 0.5 for c in cells)
        rounds[scale] = {c.experiment.train.rounds for c in cells}
    assert rounds == {"full": {200}, "small": {40}}
