"""A real Flower deployment for tests: one SuperLink and one SuperNode per client, on free ports of the loopback.

Everything the processes write stays in the directory that the caller gives, and no process outlives the context,
whatever happens in it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

CERTIFICATES = Path(__file__).parents[2] / "examples" / "flower-app" / "certificates.sh"
COMMANDS = Path(sys.executable).parent  # Flower starts its own helpers by name, so this also heads their PATH
WARM = (sys.executable, "-c", "from fupareto.cli import main; main()", "flower", "warm", "--")
START_SECONDS = 120.0  # importing Flower takes seconds, many of them on a busy machine
STOP_SECONDS = 5.0


@dataclass
class Deployment:
    """The running SuperLink and SuperNodes; made by `deployment`."""

    directory: Path
    tls: bool
    port: int
    simulation: bool = False
    warm: bool = False
    flower: Path | None = None
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _commands: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, app: Path, config: str = "", *more: str, timeout: float = 1500.0) -> subprocess.CompletedProcess[str]:
        """Submit the app, wait until its run ends and return the streamed log.

        `flwr run` exits with 0 even when the ServerApp fails; ask `status` how the run ended.
        """
        process = self.start_run(app, config, *more)
        output, _ = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def start_run(self, app: Path, config: str = "", *more: str) -> subprocess.Popen[str]:
        """Submit the app and return the process that streams the run's log; killing it does not stop the run."""
        override = ["--run-config", config] if config else []
        return self._flwr("run", str(app.resolve()), "test", "--stream", *override, *more)

    def status(self) -> str:
        """How the latest run stands: `running`, `finished:completed`, `finished:failed`, `finished:stopped`..."""
        listing = _output(self._flwr("list", "test", "--format", "json"))
        return str(json.loads(listing)["runs"][0]["status"])

    def start_node(self, client: str, patience: float = 0.0, name: str = "") -> int:
        """Start the client's SuperNode and return its node id once it is online; raise if the SuperLink refuses it.

        With TLS, the SuperLink refuses a node that was killed until it misses its heartbeat, for a minute: this is
        how long a test that wants the node back has to be patient. A node may call itself by another name.
        """
        deadline = time.monotonic() + patience
        while True:
            self._launch_node(client, name)
            try:
                return self._wait_for_node(client)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise

    def register_nodes(self, *clients: str) -> None:
        """Tell the SuperLink to accept the clients' keys; at once, because every `flwr` takes seconds to start."""
        keys = [str(self.directory / "keys" / f"{client}.key.pub") for client in clients]
        for process in [self._flwr("supernode", "register", key, "test") for key in keys]:
            _output(process)

    def make_keys(self, *clients: str) -> None:
        """Make the keys that are missing, without registering them."""
        subprocess.run([CERTIFICATES, self.directory / "keys", *clients], check=True)

    def kill_node(self, client: str) -> None:
        """End the client's SuperNode and its ClientApp as a crash or power cut would: nothing says goodbye."""
        _end([self._processes.pop(_node(client))], gently=False)

    def stop_node(self, client: str) -> None:
        """End the client's SuperNode in order: it tells the SuperLink."""
        _end([self._processes.pop(_node(client))])

    def group_of(self, name: str) -> int:
        """The process group of `superlink`, `superexec` or `node-<client>`, with all that it has started."""
        return self._processes[name].pid

    def logs(self) -> dict[str, str]:
        """What each process has printed: `superlink`, `superexec` and `node-<client>`, of its last start."""
        return {path.stem: path.read_text(errors="replace") for path in sorted(self.directory.glob("*.log"))}

    def close(self) -> None:
        """End every process."""
        # The SuperLink would wait for the commands that still stream a log, so they go first.
        _end([command for command in self._commands if command.poll() is None], gently=False)
        for command in self._commands:
            if command.stdout is not None:
                command.stdout.close()
        _end(self._processes.values())
        self._commands.clear()
        self._processes.clear()

    def _start_superlink(self) -> None:
        keys = self.directory / "keys"
        security, trust, connection = ["--insecure"], ["--insecure"], "insecure = true"
        if self.tls:
            security = [
                f"--ssl-ca-certfile={keys / 'ca.crt'}",
                f"--ssl-certfile={keys / 'server.crt'}",
                f"--ssl-keyfile={keys / 'server.key'}",
                "--enable-supernode-auth",
            ]
            trust, connection = [f"--root-certificates={keys / 'ca.crt'}"], f'root-certificates = "{keys / "ca.crt"}"'
        address = f"127.0.0.1:{self.port}"
        home = Path(self._environment("cli")["FLWR_HOME"])
        (home / "config.toml").write_text(f'[superlink.test]\naddress = "{address}"\n{connection}\n')
        # By default the SuperLink starts its SuperExec in a new session, out of our reach: we start it ourselves.
        isolation = ["--isolation=process", "--host=127.0.0.1", f"--port={self.port}"]
        nodes = ["--simulation"] if self.simulation else []
        self._start("superlink", ["flower-superlink", *security, *isolation, *nodes])
        self._wait_for("superlink", "Uvicorn running on ")
        self._start("superexec", ["flower-superexec", *trust, f"--runtime-api-address={address}"])

    def _launch_node(self, client: str, name: str = "") -> None:
        keys = self.directory / "keys"
        link = ["--insecure"]
        if self.tls:
            link = [f"--root-certificates={keys / 'ca.crt'}", f"--auth-supernode-private-key={keys / client}.key"]
        link += [f"--superlink=127.0.0.1:{self.port}", f'--node-config=client-id="{name or client}"']
        here = ["--host=127.0.0.1", f"--port={_free_port()}"]
        self._start(_node(client), ["flower-supernode", *link, *here], WARM if self.warm else ())

    def _wait_for_node(self, client: str) -> int:
        return int(self._wait_for(_node(client), "SuperNode ID: ").split()[0])

    def _start(self, name: str, command: list[str], before: Sequence[str] = ()) -> None:
        if name in self._processes:
            raise ValueError(f"{name} runs already")
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*before, COMMANDS / command[0], *command[1:]],
                cwd=self.directory,
                env=self._environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self, name: str) -> dict[str, str]:
        """The environment of one process, with a home of its own: two that install an app at once would collide."""
        home = self.directory / name
        home.mkdir(exist_ok=True)
        paths = [str(self.flower)] if self.flower else []
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
            "PATH": f"{COMMANDS}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(home),
            "TMPDIR": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        }

    def _flwr(self, *arguments: str) -> subprocess.Popen[str]:
        command = subprocess.Popen(
            [COMMANDS / "flwr", *arguments],
            cwd=self.directory,
            env=self._environment("cli"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._commands.append(command)
        return command

    def _wait_for(self, name: str, text: str) -> str:
        """Wait until the process has logged the text; return what follows it in its line."""
        log = self.directory / f"{name}.log"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            ended = self._processes[name].poll() is not None
            _, found, rest = log.read_text(errors="replace").partition(text)
            if found and "\n" in rest:
                return rest.partition("\n")[0]
            if ended:
                break
            time.sleep(0.1)
        _end([self._processes.pop(name)])
        raise RuntimeError(f"{name} did not start:\n{log.read_text(errors='replace')}")


@contextmanager
def deployment(
    directory: Path,
    clients: Sequence[str],
    tls: bool,
    simulation: bool = False,
    warm: bool = False,
    flower: Path | None = None,
) -> Iterator[Deployment]:
    """Start a SuperLink and the clients' SuperNodes, with TLS and node authentication or without both.

    With ``flower``, they are those of the version of Flower that is installed in that directory.

    A SuperLink for simulation has no SuperNodes: it simulates them when a run begins.
    """
    running = Deployment(directory.resolve(), tls, _free_port(), simulation, warm, flower)
    try:
        if tls:
            running.make_keys(*clients)
        running._start_superlink()
        if tls:
            running.register_nodes(*clients)
        for client in clients:
            running._launch_node(client)
        for client in clients:
            running._wait_for_node(client)
        yield running
    finally:
        running.close()


def _node(client: str) -> str:
    return f"node-{client}"


def _free_port() -> int:
    """A port that nobody listens on now; Flower refuses port 0, so somebody else could still take it first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _output(process: subprocess.Popen[str]) -> str:
    """What the command printed; raise if it failed."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args!r}:\n{output}")
    return output


def _end(processes: Iterable[subprocess.Popen[bytes] | subprocess.Popen[str]], *, gently: bool = True) -> None:
    """End the processes with all that they have started: each leads a process group."""
    roots = list(processes)
    groups = {process.pid for process in roots}
    for number in [signal.SIGTERM, signal.SIGKILL] if gently else [signal.SIGKILL]:
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, number)
        deadline = time.monotonic() + STOP_SECONDS
        while groups & _living_groups() and time.monotonic() < deadline:
            time.sleep(0.05)
    for process in roots:
        process.wait()


def _living_groups() -> set[int]:
    """The process groups with a member that is not a zombie."""
    listing = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    return {int(group) for group, state in map(str.split, listing.splitlines()) if not state.startswith("Z")}
