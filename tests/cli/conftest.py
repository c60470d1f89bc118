"""A small experiment, and its runs, made once."""

import sys
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

from fupareto.cli import main

from .commands import EXPERIMENT, Ended, files, forked

Call = Callable[..., Ended]


@pytest.fixture(scope="session", autouse=True)
def _no_process_left_behind() -> Iterator[None]:
    """Wait for the fork server to end with the tests; left alone, it outlives them by a moment."""
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with small.toml, its training run ``trained`` and the unlearning run ``forgotten``; left as it is."""
    place = tmp_path_factory.mktemp("small")
    (place / "small.toml").write_text(EXPERIMENT)
    for args in (("train", "small.toml", "--out", "trained"), ("unlearn", "trained", "--out", "forgotten")):
        ended = forked(*args, cwd=place)
        assert ended.code == 0, ended.err
    return place


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process."""

    def run(*args: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fupareto", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, said.out, said.err)

    return run


@pytest.fixture
def mistake(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command that must be refused: exit code 2, no traceback, the words said, and every file as it was."""
    monkeypatch.chdir(tmp_path)

    def run(*args: object, says: tuple[str, ...]) -> str:
        before = files(tmp_path)
        ended = call(*args)
        assert ended.code == 2, ended
        assert "Traceback" not in ended.err
        for word in says:
            assert word in ended.err, f"{word!r} is not in: {ended.err}"
        assert ended.out == ""
        assert files(tmp_path) == before
        return ended.err

    return run
