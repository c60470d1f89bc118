"""Durable files: replacement leaves no temporary file behind, whoever was killed, and takes none that is in use."""

import os
import threading
from pathlib import Path

from fupareto import files


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    (tmp_path / f".fupareto-{16 * 'a'}.part").write_bytes(b"half of")
    (tmp_path / ".fupareto-notes.part").write_bytes(b"somebody's")
    files.put(tmp_path / "certificate.json", b"{}")
    assert names(tmp_path) == [".fupareto-notes.part", "certificate.json"]


def test_a_part_in_use_stays(tmp_path: Path) -> None:
    part = tmp_path / f".fupareto-{16 * 'c'}.part"
    descriptor = files._locked(part)
    files.put(tmp_path / "other", b"")
    assert names(tmp_path) == sorted([part.name, "other"])
    os.close(descriptor)
    files.put(tmp_path / "other", b"")
    assert names(tmp_path) == ["other"]


def test_a_link_with_the_name_of_a_part_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"kept")
    (tmp_path / f".fupareto-{16 * 'b'}.part").symlink_to("secret")
    files.put(tmp_path / "other", b"")
    assert (tmp_path / "secret").read_bytes() == b"kept"


def test_many_writers_in_one_directory(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(30):
            files.put(tmp_path / f"{number}", bytes([number]) * 100)

    failed: list[object] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = before
    assert not failed
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == {
        f"{number}": bytes([number]) * 100 for number in range(4)
    }
