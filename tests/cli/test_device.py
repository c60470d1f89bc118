"""Where clients compute, from the command line."""

from pathlib import Path

import pytest

from .conftest import Call


@pytest.mark.parametrize("device", ["abacus", "cuda:77"])
def test_a_device_that_is_not_there_is_refused(device: str, call: Call, small: Path, tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text(
        'name = "b"\ntitle = "b"\nseeds = [0]\nexperiment = { data = { samples = 200 } }\n'
        '[[settings]]\nname = "s"\n[[methods]]\nmethod = "fedosd"\nlabel = "FedOSD"\n'
    )
    for args in (
        ("train", small / "small.toml"),
        ("unlearn", small / "trained"),
        ("bench", tmp_path / "bench.toml"),
    ):
        ended = call(*args, "--device", device, "--out", tmp_path / "run")
        assert ended.code == 2, ended
        assert f"the device '{device}' cannot be used" in ended.err
        assert not (tmp_path / "run").exists()


def test_the_cpu_is_the_default(call: Call, small: Path, tmp_path: Path) -> None:
    ended = call("train", small / "small.toml", "--device", "cpu", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    name = "initial.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (small / "trained" / name).read_bytes()
