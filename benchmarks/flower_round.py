"""What does a round cost over Flower? One app in our engine, in Flower's simulation and in a deployment on loopback.

    PYTHONPATH=tests python benchmarks/flower_round.py [RESULT.json]

The example app with four clients: rounds of FedAvg, which are one message per client, and of FUPareto, which are two. A
round's seconds are those of its record, measured by the server, in one run of each engine after the other. A deployment
is measured cold and warm (``fupareto flower warm``). Two nodes on two cores show what a question costs where a node has
a core to itself. Flower's simulation needs
``pip install 'flwr[simulation]'`` and is left out without it.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import safetensors.torch

import fupareto
from flower.example import APP, data, model
from flower.processes import deployment
from fupareto import FedAvg
from fupareto.methods import Method
from fupareto.methods.registry import find
from fupareto.run.directory import Run
from fupareto.versions import versions

CLIENTS = ("0", "1", "2", "7")
METHODS: dict[str, Method] = {
    "fedavg": FedAvg(rounds=3, lr=0.3, batch_size=10),
    "fupareto": find("fupareto:guard", {"rounds": 3, "recovery_rounds": 0, "lr": 0.3}),
}
OPTIONS = {"fedavg": "rounds=3 lr=0.3 batch_size=10", "fupareto": "rounds=3 recovery_rounds=0 lr=0.3"}


def seconds(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The first round, which pays for starting, and the others."""
    found = [float(r["seconds"]) for r in records]
    return {"first": found[0], "median": median(found[1:]), "all": found}


def ours(start: Path) -> dict[str, Any]:
    held = {i: data(SimpleNamespace(node_config={"client-id": i})) for i in CLIENTS}
    federation = fupareto.simulate(model(), held)
    w0 = federation.layout.flat(safetensors.torch.load_file(start))
    return {
        "fedavg": seconds(fupareto.train(federation, w0, METHODS["fedavg"], measure_every=0).rounds),
        "fupareto": seconds(fupareto.unlearn(federation, w0, ["0"], METHODS["fupareto"], measure_every=0).rounds),
    }


def config(method: str, start: Path, out: Path, clients: int) -> str:
    forget = "" if method == "fedavg" else "0"
    name = "fupareto:guard" if method == "fupareto" else method
    words = [f'method="{name}"', f'options="{OPTIONS[method]}"', f'forget="{forget}"', f'model="{start}"']
    return " ".join([*words, f'out="{out}"', f"clients={clients} measure-every=0 audit=false"])


def over_flower(
    place: Path, start: Path, clients: tuple[str, ...], *, simulated: bool = False, warm: bool = False
) -> dict[str, Any]:
    place.mkdir()
    found = {}
    with deployment(place, () if simulated else clients, tls=False, simulation=simulated, warm=warm) as running:
        for method in METHODS:
            out = place / "runs" / method
            done = running.run(APP, config(method, start, out, len(clients)), *(SIMULATED if simulated else ()))
            if not (out / "summary.json").is_file():
                raise RuntimeError(done.stdout)
            found[method] = seconds(Run.open(out).rounds())
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        start = place / "w0.safetensors"
        safetensors.torch.save_file(model().state_dict(), start)
        engines = {"ours": ours(start)}
        for name, clients in (("deployment", CLIENTS), ("deployment of two", CLIENTS[:2])):
            for warm in (False, True):
                label = f"{name}, warm" if warm else name
                engines[label] = over_flower(place / label.replace(" ", "-"), start, clients, warm=warm)
                print(label, engines[label], file=sys.stderr, flush=True)
        if importlib.util.find_spec("ray"):
            engines["simulation"] = over_flower(place / "simulated", start, CLIENTS, simulated=True)
    imports = {
        what: float(subprocess.run([sys.executable, "-c", TIMED.format(what)], capture_output=True, text=True).stdout)
        for what in ("torch", "flwr.clientapp", "fupareto.flower.client")
    }
    result = {"versions": versions(("flwr",)), "clients": len(CLIENTS), "engines": engines, "import_seconds": imports}
    text = json.dumps(result, indent=2) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    print(text, end="")


SIMULATED = ("--federation-config", "num-supernodes=4 client-resources-num-cpus=1 init-args-num-cpus=2")
TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"

if __name__ == "__main__":
    main()
