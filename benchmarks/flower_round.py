"""What does a round cost over Flower? One app in our engine, in Flower's simulation and in a deployment on loopback.

    PYTHONPATH=tests python benchmarks/flower_round.py RESULT.json [--passes 2]

The example app with two and with four clients: rounds of FedAvg, which are one message per client, and of FUPareto,
which are two. A round's seconds are those of its record, measured by the server. Deployments are measured cold and warm
(``fupareto flower warm``) in turns, every other pass in reverse order, with the load of the machine before each; on a
quiet machine a pass takes about ten minutes. Two nodes on two cores show what a question costs where a node has a core
to itself. What is measured is written at once, and a second call with the same file goes on from there.
Flower's simulation needs ``pip install 'flwr[simulation]'`` and is left out without it.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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


Cell = dict[str, Any]  # one deployment in one pass: nodes, warm, pass, load, and the seconds of each method


def cells(passes: int) -> Iterator[Cell]:
    """What is measured, in its order."""
    order = [(4, False), (4, True), (2, False), (2, True)]
    for number in range(passes):
        for nodes, warm in order if number % 2 == 0 else reversed(order):
            yield {"nodes": nodes, "warm": warm, "pass": number}


def label(nodes: int, warm: bool) -> str:
    return f"deployment{' of two' if nodes == 2 else ''}{', warm' if warm else ''}"


def pooled(found: list[Cell]) -> dict[str, Any]:
    """The rounds of all passes by kind of deployment: the first of each run apart from the others."""
    engines: dict[str, Any] = {}
    for nodes, warm in ((4, False), (4, True), (2, False), (2, True)):
        mine = [cell for cell in found if (cell["nodes"], cell["warm"]) == (nodes, warm)]
        if mine:
            engines[label(nodes, warm)] = {
                method: pooled_rounds([c[method]["all"] for c in mine]) for method in METHODS
            }
    return engines


def pooled_rounds(runs: list[list[float]]) -> dict[str, Any]:
    later = [seconds for run in runs for seconds in run[1:]]
    return {"first": median(run[0] for run in runs), "median": median(later), "all": [x for run in runs for x in run]}


def times_as_fast(engines: dict[str, Any]) -> dict[str, dict[str, float]]:
    """How many times as fast a round is warm."""
    return {
        cold: {m: float(f"{engines[cold][m]['median'] / engines[f'{cold}, warm'][m]['median']:.3g}") for m in METHODS}
        for cold in (label(4, False), label(2, False))
        if cold in engines and f"{cold}, warm" in engines
    }


def measure(result: dict[str, Any], place: Path, passes: int, write: Any) -> None:
    """Measure what the result does not have yet."""
    start = place / "w0.safetensors"
    safetensors.torch.save_file(model().state_dict(), start)
    result.setdefault("ours", ours(start))
    done = result.setdefault("cells", [])
    for cell in cells(passes):
        if any(all(known[key] == cell[key] for key in cell) for known in done):
            continue
        load = round(os.getloadavg()[0], 1)
        name = f"{cell['nodes']}-{'warm' if cell['warm'] else 'cold'}-{cell['pass']}"
        found = over_flower(place / name, start, CLIENTS[: cell["nodes"]], warm=cell["warm"])
        done.append({**cell, "load": load, **found})
        print(name, f"load {load}", {m: found[m]["all"] for m in METHODS}, file=sys.stderr, flush=True)
        write()
    if importlib.util.find_spec("ray") and "simulation" not in result:
        result["simulation"] = over_flower(place / "simulated", start, CLIENTS, simulated=True)


def imported(what: str) -> float:
    """The seconds that an import takes in a new process."""
    return float(subprocess.run([sys.executable, "-c", TIMED.format(what)], capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds of a round over Flower.")
    parser.add_argument("result", type=Path, help="JSON file to write, or to go on with")
    parser.add_argument("--passes", type=int, default=2, help="how often every deployment is measured")
    chosen = parser.parse_args()
    result: dict[str, Any] = json.loads(chosen.result.read_text()) if chosen.result.exists() else {}
    if result and ("cells" not in result or result.get("versions") != versions(("flwr",))):
        raise SystemExit(f"{chosen.result} was measured with other versions, or in another way; name a new file")

    def write() -> None:
        chosen.result.write_text(json.dumps(result, indent=2) + "\n")

    result["versions"], result["clients"] = versions(("flwr",)), len(CLIENTS)
    with tempfile.TemporaryDirectory() as name:
        measure(result, Path(name), chosen.passes, write)
    more = {"simulation": result["simulation"]} if "simulation" in result else {}
    result["engines"] = {"ours": result["ours"], **pooled(result["cells"]), **more}
    result["times_as_fast_warm"] = times_as_fast(result["engines"])
    result["import_seconds"] = {what: imported(what) for what in ("torch", "flwr.clientapp", "fupareto.flower.client")}
    write()
    print(json.dumps(result["times_as_fast_warm"]))


SIMULATED = ("--federation-config", "num-supernodes=4 client-resources-num-cpus=1 init-args-num-cpus=2")
TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"

if __name__ == "__main__":
    main()
