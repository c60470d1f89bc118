"""Runs a command, such as ``flower-supernode``, whose ClientApps are forked from a warm process."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fupareto.errors import UserError
from fupareto.flower.warm.server import COMMAND, MODULE

HERE = Path(__file__).parent


def run(command: Sequence[str]) -> int:
    """Run a command with a warm process of its own; return its exit code.

    The warm process, its socket (which only this user can open) and the small command end with it. A warm process that
    dies earlier is not missed: ClientApps then start in the ordinary way.

    Args:
        command: The command and its arguments.
    """
    ordinary = shutil.which(COMMAND)
    if ordinary is None:
        raise UserError(
            f"{COMMAND} is not on the PATH, so there is nothing to start warm; install fupareto[flower], and put the "
            "environment's bin directory on the PATH"
        )
    if shutil.which(command[0]) is None:
        raise UserError(f"the command '{command[0]}' was not found; name one such as: flower-supernode --insecure …")
    if not hasattr(os, "pidfd_open"):
        raise UserError("a warm process needs Linux 5.3 or newer; run the command itself instead")
    place = Path(tempfile.mkdtemp(prefix="fupareto-warm-"))  # mode 0700
    try:
        return _run(command, place, ordinary)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(command: Sequence[str], place: Path, ordinary: str) -> int:
    path = place / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen(64)
        script = place / "bin" / COMMAND
        script.parent.mkdir()
        words = [sys.executable, "-IS", str(HERE / "command.py"), str(path), ordinary]
        script.write_text("#!/bin/sh\nexec " + " ".join(map(_quoted, words)) + ' "$@"\n')
        script.chmod(0o700)
        reading, writing = os.pipe()  # its end tells the warm process that we have ended, however that happened
        warm = [sys.executable, "-m", MODULE, str(listening.fileno()), str(reading)]
        server = subprocess.Popen(warm, pass_fds=(listening.fileno(), reading), stdin=subprocess.DEVNULL)
        os.close(reading)
        listening.close()
        try:
            environment = {**os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
            return _supervised(subprocess.Popen(list(command), env=environment))
        finally:
            os.close(writing)
            try:
                server.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _supervised(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process, and pass the signals on that would end us."""
    old = {
        number: signal.signal(number, lambda received, _: process.send_signal(received))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    try:
        code = process.wait()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
