"""The warm process: imports once, then forks for every command that it is asked to run."""

import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

COMMAND = "flwr-clientapp"
MODULE = "fupareto.flower.warm.server"
PRELOADED = ("torch", "fupareto.flower.client", "fupareto.federation.questions", "fupareto.models")
AT_IMPORT = ("PYTHON", "FLWR_", "OMP_", "MKL_", "OPENBLAS_", "TORCH", "CUDA_", "LD_", "VIRTUAL_ENV", "PATH")
MOST_REQUEST = 2**22  # bytes
MOST_LEARNT = 200  # modules that are imported because apps import them


class Warm:
    """Preloaded process that forks commands.

    Args:
        listening: Socket that commands connect to.
        parent: File descriptor of a pipe; its end means that the owner has ended.
    """

    def __init__(self, listening: socket.socket, parent: int) -> None:
        self.listening, self.parent = listening, parent
        self.run: Callable[[], Any] = next(iter(entry_points(group="console_scripts", name=COMMAND))).load()
        for name in PRELOADED:
            importlib.import_module(name)
        self.running: dict[int, tuple[int, socket.socket]] = {}  # pidfd -> process and connection
        self.learning: dict[int, bytes] = {}  # pipe of a process -> the names of modules that it imported
        self.learnt: set[str] = set()
        self.seen, self.stale = _stamps(), False  # whether files have changed, so that imports must be done again

    def serve(self) -> None:
        """Serve until the owner has ended."""
        while True:
            links = {link.fileno(): pidfd for pidfd, (_, link) in self.running.items()}
            waiting = [self.listening.fileno(), self.parent, *self.running, *links, *self.learning]
            ready = select.select(waiting, [], [])[0]
            if self.parent in ready:
                break
            for fd in ready:
                if fd in self.running:
                    self._ended(fd)
                elif fd in links and links[fd] in self.running:
                    self._abandoned(links[fd])
                elif fd in self.learning:
                    self._learn(fd)
            if self.listening.fileno() in ready:
                self._accept()
            if self.stale and not self.running:
                self._reload()
        for pid, _ in self.running.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _accept(self) -> None:
        """Read a request and fork; a request that cannot be answered here is refused, and runs without us."""
        link, _ = self.listening.accept()
        link.settimeout(10.0)
        streams: list[int] = []
        try:
            head, streams, _, _ = socket.recv_fds(link, 4, 3)
            size = int.from_bytes(head, "big")
            request = json.loads(_exactly(link, size)) if len(head) == 4 and 0 < size <= MOST_REQUEST else None
            fit = request is not None and len(streams) == 3 and _same_environment(request["environment"])
            self.stale = self.stale or _stamps() != self.seen
            if not fit or self.stale:
                link.sendall(b"n")
                link.close()
                return
            link.sendall(b"y")
            link.settimeout(None)
            self._fork(request, streams, link)
        except (OSError, ValueError, KeyError, TypeError):
            link.close()
        finally:
            for fd in streams:
                os.close(fd)

    def _fork(self, request: Any, streams: list[int], link: socket.socket) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._child(request, streams, writing)
        os.close(writing)
        self.running[os.pidfd_open(pid)] = (pid, link)
        self.learning[reading] = b""

    def _child(self, request: Any, streams: list[int], learnt: int) -> NoReturn:
        """Become the command: its streams, directory, environment and arguments, and nothing of the warm process."""
        code = 1
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
            for target, fd in enumerate(streams):
                os.dup2(fd, target)
            self.listening.close()
            os.close(self.parent)
            os.chdir(request["directory"])
            os.environ.clear()
            os.environ.update(request["environment"])
            sys.argv = [COMMAND, *request["arguments"]]
            before = set(sys.modules)
            try:
                self.run()
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            os.write(learnt, "\n".join(_installed(set(sys.modules) - before)).encode()[:60_000])
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _ended(self, pidfd: int) -> None:
        """Tell the command that waits how its process ended."""
        pid, link = self.running.pop(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(OSError):
            link.sendall(bytes([code if code >= 0 else 128 - code]))
        link.close()

    def _abandoned(self, pidfd: int) -> None:
        """End the process of a command that was killed."""
        pid, link = self.running[pidfd]
        with suppress(OSError):
            if link.recv(1):
                return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        self._ended(pidfd)

    def _learn(self, reading: int) -> None:
        """Import what an app imported from installed packages, so that the next process has it; not the app itself."""
        data = os.read(reading, 65_536)
        self.learning[reading] += data
        if data:
            return
        names = self.learning.pop(reading).decode(errors="replace").split("\n")
        os.close(reading)
        if self.stale:
            return
        self.stale = _stamps() != self.seen
        for name in names[: MOST_LEARNT - len(self.learnt)]:
            if name and name not in self.learnt:
                self.learnt.add(name)
                with suppress(Exception):
                    importlib.import_module(name)
        self.seen = _stamps()

    def _reload(self) -> NoReturn:
        """Start again in the same process, because installed files have changed."""
        for fd in (self.listening.fileno(), self.parent):
            os.set_inheritable(fd, True)
        os.execv(sys.executable, [sys.executable, "-m", MODULE, str(self.listening.fileno()), str(self.parent)])


def _exactly(link: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = link.recv(size - len(found))
        if not part:
            raise ValueError("the request ended early")
        found += part
    return found


def _same_environment(environment: dict[str, str]) -> bool:
    """Return whether what is read at import is the same in the command's environment, but for the PATH's own order."""
    keys = {k for k in (*environment, *os.environ) if k.startswith(AT_IMPORT) and k != "PATH"}
    return all(environment.get(k) == os.environ.get(k) for k in keys)


def _installed(names: set[str]) -> list[str]:
    """Return the modules that come from installed packages, those first that others are part of."""
    places = tuple(str(Path(p)) for p in sys.path if p.endswith(("site-packages", "dist-packages")))
    found = [n for n in names if str(getattr(sys.modules.get(n), "__file__", None) or "").startswith(places or ("\0",))]
    return sorted(found, key=lambda n: (n.count("."), n))[:MOST_LEARNT]


def _stamps() -> dict[str, int]:
    """Return the time of every file that was imported, by which a change is noticed."""
    found = {}
    for module in list(sys.modules.values()):
        if file := getattr(module, "__file__", None):
            with suppress(OSError):
                found[file] = os.stat(file).st_mtime_ns  # noqa: PTH116 - thousands of files for every command
    return found


def main() -> None:
    """Serve on an inherited socket; the arguments are its file descriptor and that of the owner's pipe."""
    listening, parent = map(int, sys.argv[1:3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the SuperNode; our owner ends us
    Warm(socket.socket(fileno=listening), parent).serve()


if __name__ == "__main__":
    main()
