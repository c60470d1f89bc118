"""What did the benchmarks find? Writes docs/performance.md from their results.

python benchmarks/page.py [--results benchmarks] [--out docs/performance.md]
"""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from common import RESULTS

Result = dict[str, Any]

CONTENDERS = {
    "fupareto": "**fupareto**",
    "eager_thread_per_core": "a tutorial's loop over clients, a thread per core",
    "eager_1_thread": "the same, one thread",
    "flower": "Flower's simulation, one CPU per client",
    "pfl": "pfl-research, one process",
    "pfl_worker_per_core": "pfl-research, a worker per core",
}


def page(results: dict[str, Result]) -> str:
    """Return the whole page; a benchmark without result is named as not measured."""
    sections: list[tuple[str, str, Callable[[Result], Iterable[str]]]] = [
        ("fedavg_round", "A FedAvg round, beside other simulators", fedavg),
        ("versions", "Beside an earlier version", versions),
        ("order", "Clients of unequal size", order),
        ("allocation", "Memory that was freed", allocation),
        ("local_step", "Where a local step spends its time", local_step),
        ("fupareto_round", "A FUPareto round, beside the passes that it needs", fupareto),
        ("line_search", "What the line search asks for in a whole run", line_search),
        ("growth", "How a round grows", growth),
        ("memory", "Memory, at the sizes that are promised", memory),
        ("solver", "The direction solvers, beside others", solver),
        ("flower_round", "A round over Flower", flower),
    ]
    lines = ["# Performance", "", *INTRODUCTION, *aims(results)]
    for name, title, render in sections:
        if name in results:
            lines += ["", f"## {title}", "", *render(results[name]), "", *provenance(name, results[name])]
        elif name != "flower_round":  # which make bench does not run
            lines += ["", f"## {title}", "", f"Not measured: there is no `benchmarks/{name}.json`."]
    return "\n".join(lines) + "\n"


INTRODUCTION = """\
`make bench` measures everything on this page again and rewrites it; it installs the peers first (the extra `bench`).
A single benchmark is `python benchmarks/NAME.py`, and `python benchmarks/page.py` rewrites the page.

Contenders take turns within one run, and what counts are ratios of neighbours: median (smallest to largest). Seconds
are of one machine, named below each table. Close other programs first: on a busy machine threads wait for each other.
""".splitlines()

CONTENDERS_IN_WORDS = """\
The loop is what a tutorial writes: a `DataLoader` per client, `torch.optim.SGD`, the mean of state dicts. The Flower
app is an ordinary one (`ClientApp`, `FedAvg` strategy, Ray with an actor per core) on the in-memory grid, which looks
for replies every tenth of a second. First rounds, in which actors start and pfl-research evaluates, are not counted.
""".splitlines()

SOLVER_IN_WORDS = """\
*min-norm* is the shortest vector of the gradients' convex hull, *cone* the nearest vector to each forget gradient
that no retained one opposes, *null space* the forget gradients with the retained ones projected out. The error is by
how much feasibility or optimality is violated, relative to the square of the longest gradient (null space: the
largest cosine with a retained gradient). Peers get the matrix as it is and have their default settings: tolerances of
most are absolute, so short gradients are hard on them unless one scales the problem first, as ours does by itself.
""".splitlines()

PARTS_IN_WORDS = """\
`gradients` and `losses` are the time in which the server waits for clients; the rest is its own. `bookkeeping` is
everything else: copying and checking answers, the rule of the line search, the record.
""".splitlines()

VERSIONS_IN_WORDS = """\
The same experiment files run by the command lines of two versions in turns: the last before 0.2, out of the git
history, and this one. Rounds are those that a run records, on random images; the table is timed as a whole: every
method with its start, its measurements and its attack, for a twentieth of the rounds of every stage.
""".splitlines()

FREED_IN_WORDS = """\
The C library returns large blocks to the system as soon as they are freed, and the system clears them again, page by
page, before the next batch can use them. The command line keeps them instead, for the whole process; the library
changes nothing of its caller's process. In your own program, call `fupareto.allocation.keep_freed_memory()` before the
federation is made, or set `MALLOC_TOP_PAD_=67108864`, `MALLOC_MMAP_THRESHOLD_=1073741824` and
`MALLOC_TRIM_THRESHOLD_=4294967296` before it starts. A FedAvg round of four clients, each in a fresh process:

""".splitlines()

STEP_IN_WORDS = """\
Nearly all of it is in the kernels of oneDNN and PyTorch. The engine is an eager loop with one thread per core; what it
gains over peers with a worker per core lies, as far as we can tell, in the layout (channels last) and in rectifying
after pooling, which make those kernels faster. Tried in passing (no result file) and not kept, on this machine:
batches in pieces that fit the cache (nothing for LeNet-5; a fifth for the CNN, but another model with batch
statistics), convolution as a matrix product of patches (LeNet-5's first: 15 against 5.5 ms), and pooling as maxima of
strided views with a backward pass of its own (a LeNet-5 round takes 0.95 of the time with one worker, 1.16 with two,
whose intermediate values then crowd the cache). Without gradients those views are kept: 1.4 times as fast, two workers.
Nor LeNet-5's first convolution and its pooling as one product of patches whose fields are rows, with the maximum of
four rows and a backward pass of its own (9.8 against 9.6 ms a step on a newer machine), nor eight channels instead of
six (a tenth less, but another model), nor the constant factors of NFResNet-18 put into its weights (no difference).
""".splitlines()

SEARCH_IN_WORDS = """\
A pass is one client's loss at one trial step, counted also where a veto came too late to spare it. The exhaustive
search is the paper's: in a round, everybody computes the loss at every step of the range. The decisions are the same
(`tests/methods/fupareto/test_search.py`).
""".splitlines()

GROWTH_IN_WORDS = """\
Small clients with an MLP of two hidden layers, every point in a fresh process; memory is what a round adds at its
peak. Exponents are over all points / through the last two.
""".splitlines()


def aims(results: dict[str, Result]) -> list[str]:
    """Return what was aimed at beside what was measured, whether it was reached or not."""
    rows: list[tuple[str, str, float, bool]] = []
    if found := results.get("fedavg_round"):
        faster = {case["case"].split(",")[0]: case["times_as_fast_as"] for case in found["cases"]}
        wanted = {"lenet5": (("eager_thread_per_core", 2.0), ("flower", 4.0)), "cnn": (("eager_thread_per_core", 1.6),)}
        for model, peers in wanted.items():
            for peer, least in peers:
                if value := faster.get(model, {}).get(peer, {}).get("median"):
                    aim = f"FedAvg round, {model}: times as fast as {CONTENDERS[peer]}"
                    rows.append((aim, f"at least {least:g}", value, value >= least))
    if found := results.get("fupareto_round"):
        cost = max(r["times_the_bare_passes"]["median"] for r in found["rounds"].values())
        server = max(r["server_share"]["median"] for r in found["rounds"].values())
        rows.append(("FUPareto round: times its bare passes, the worst kind", "at most 1.10", cost, cost <= 1.1))
        rows.append(("the server's share of it", "under 0.05", server, server < 0.05))
    if found := results.get("line_search"):
        share = max(c["passes"] / c["passes_of_the_exhaustive_search"] for c in found["cells"])
        rows.append(
            ("line search: passes, of the exhaustive search's, the worst run", "at most 0.5", share, share <= 0.5)
        )
    if found := results.get("growth"):
        for axis in found["axes"]:
            if axis["axis"].endswith("samples in all") and axis["exponent_of_seconds"]:
                power = max(axis["exponent_of_seconds"].values())
                aim = f"{WORK[axis['work']]}: exponent of time in clients, the same samples"
                rows.append((aim, "at most 1.1", power, power <= 1.1))
    if not rows:
        return []
    cells = [(aim, wanted, f"{value:.2f}", "yes" if reached else "**no**") for aim, wanted, value, reached in rows]
    return ["", "## What was aimed at", "", *table(("", "aim", "measured", "reached"), cells)]


def provenance(name: str, result: Result) -> list[str]:
    machine = result.get("machine")
    if machine is None:
        found = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
        return [f"[`benchmarks/{name}.json`](../benchmarks/{name}.json); {found}."]
    versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items())
    return [
        f"[`benchmarks/{name}.json`](../benchmarks/{name}.json), {machine['date']}: {machine['cores']} cores of "
        f"{machine['cpu']}, {machine['memory_gib']:g} GiB, load {machine['load_before_and_after'][0]} before; "
        f"Python {machine['python']}, {versions}."
    ]


def fedavg(result: Result) -> Iterable[str]:
    yield "One local epoch of plain SGD by every client (batch 200), then the weighted mean. Random data, in memory."
    for case in result["cases"]:
        peak = case["product_gflops"]["median"]
        yield from ("", f"**{case['case']}**, {case['repeats']} repeats:", "")
        yield from table(
            ("", "seconds", "fupareto is faster by", "of the cores' peak"),
            (
                (
                    words,
                    number(case["seconds"][name]["median"]),
                    times(case["times_as_fast_as"].get(name)),
                    f"{case['share_of_peak'][name]['median']:.0%}",
                )
                for name, words in CONTENDERS.items()
                if name in case["seconds"]
            ),
        )
        again = "bit for bit the same" if case["bit_for_bit_repeatable"] else "NOT the same"
        yield ""
        yield f"Peak: {peak:.0f} GFLOP/s, a large float32 product on all cores."
        yield f"{agreement(case['agreement'])} Our round repeated is {again}."
    yield from absent(result["cases"][0]["skipped"])
    yield from ("", *CONTENDERS_IN_WORDS)


def agreement(found: dict[str, float] | None) -> str:
    if found is None:
        return "Dropout draws differ, so weights are not compared."
    return (
        f"Weights move by up to {found['largest_move']:g}; ours and all others' differ by up to "
        f"{found['ours_and_others']:g}, the loop's at two numbers of threads by "
        f"{found['loop_at_two_numbers_of_threads']:g}: rounding."
    )


def fupareto(result: Result) -> Iterable[str]:
    yield f"LeNet-5, {result['clients']} clients of {result['samples']:,} samples, {result['forget']} to be forgotten."
    yield "The bare passes are the round's own forward and backward passes, on as many threads, and nothing else."
    yield ""
    yield from table(
        ("round", "seconds", "times the bare passes", "passes: gradient + loss", "steps tried", "server's share"),
        (
            (
                name,
                number(r["seconds"]["median"]),
                times(r["times_the_bare_passes"]),
                f"{r['gradient_passes']} + {r['loss_passes']}",
                str(r["steps_tried"]),
                f"{r['server_share']['median']:.1%}",
            )
            for name, r in result["rounds"].items()
        ),
    )
    yield from ("", "Where the time goes (medians):", "")
    parts = list(next(iter(result["rounds"].values()))["share"])
    yield from table(
        ("round", *parts),
        ((name, *(f"{r['share'][part]['median']:.1%}" for part in parts)) for name, r in result["rounds"].items()),
    )
    yield from ("", *PARTS_IN_WORDS)


def growth(result: Result) -> Iterable[str]:
    yield from (*GROWTH_IN_WORDS, "")
    rows = []
    for axis in result["axes"]:
        field = GROWING.get(axis["axis"], "clients")
        cells = [
            f"{p[field]:,}: {number(p['seconds']['median'])} s, {p['peak_mib']:,.0f} MiB"
            if "failure" not in p
            else f"{p['clients']:,} clients: {p['failure']}"
            for p in axis["points"]
        ]
        exponents = [
            "–" if e is None else f"{e['all']:.2f} / {e['last_two']:.2f}"
            for e in (axis["exponent_of_seconds"], axis["exponent_of_memory"])
        ]
        rows.append((axis["axis"], WORK[axis["work"]], "<br>".join(cells), *exponents))
    yield from table(("what grows", "work", "size: seconds, memory", "time", "memory"), rows)


def versions(result: Result) -> Iterable[str]:
    yield from (*VERSIONS_IN_WORDS, "")
    rows = [
        (
            f"FedAvg round, {found['model']}, {found['clients']} clients, batches of {found['batch']}",
            *(number(found["seconds"][name]["median"]) for name in ("before", "after")),
            times(found["times_as_fast"]),
        )
        for found in result["rounds"]
    ]
    if found := result["table"]:
        words = "a twentieth of Table I on Fashion-MNIST, laptop scale, CN = 5"
        seconds = (number(found["seconds"][name]["median"]) for name in ("before", "after"))
        rows.append((words, *seconds, times(found["times_as_fast"])))
    else:
        yield from absent({"Table I": result["skipped"]})
    yield from table(("", f"seconds, revision {result['before']}", "seconds now", "times as fast"), rows)


def order(result: Result) -> Iterable[str]:
    yield "A FedAvg round of ten unequal clients: the largest begin, so that none keeps the others waiting at the end."
    yield ""
    rows = [
        (found["model"], f"{min(found['sizes'])} to {max(found['sizes'])}", times(found["times_as_fast"]))
        for found in result["models"]
    ]
    yield from table(("", "samples", "times as fast as in the order asked"), rows)


def allocation(result: Result) -> Iterable[str]:
    yield from FREED_IN_WORDS
    rows = [
        (
            found["model"],
            str(found["batch"]),
            times(found["times_as_fast"]),
            *(f"{found['peak_mib'][name]['median']:,.0f}" for name in ("returned", "kept")),
        )
        for found in result["models"]
    ]
    yield from table(("", "batch", "times as fast when kept", "peak when returned, MiB", "when kept"), rows)


def local_step(result: Result) -> Iterable[str]:
    yield "One step of SGD on one thread, by the torch profiler."
    yield ""
    parts = list(dict.fromkeys(name for model in result["models"] for name in model["share"]))
    yield from table(
        ("", "samples", "milliseconds", *parts),
        (
            (
                found["model"],
                str(found["samples"]),
                number(found["milliseconds"]["median"]),
                *(f"{found['share'].get(name, 0.0):.0%}" for name in parts),
            )
            for found in result["models"]
        ),
    )
    yield from ("", *STEP_IN_WORDS)


def line_search(result: Result) -> Iterable[str]:
    file = f"experiments/{result['experiment']}.toml"
    yield f"FUPareto, [`{file}`](../{file}) at the scale `{result['scale']}`:"
    yield f"{result['reduced']}."
    yield from ("", *SEARCH_IN_WORDS)
    yield ""
    yield from table(
        (
            "",
            "rounds, of which without a step",
            "steps tried",
            "passes",
            "everybody, every tried step",
            "exhaustive",
            "share",
        ),
        (
            (
                cell["label"],
                f"{cell['rounds']}, {cell['rounds_without_a_step']}",
                f"{cell['steps_tried']:,}",
                f"{cell['passes']:,}",
                f"{cell['passes_if_everybody_answers_every_tried_step']:,}",
                f"{cell['passes_of_the_exhaustive_search']:,}",
                f"{cell['passes'] / cell['passes_of_the_exhaustive_search']:.0%}",
            )
            for cell in result["cells"]
        ),
    )


def memory(result: Result) -> Iterable[str]:
    yield "FUPareto, two rounds of unlearning and one of recovery with their checkpoints, each in a fresh process, two"
    yield "workers. MiB over what the process held with data and model in place."
    yield ""
    yield from table(
        ("", "parameters", "peak", "predicted", "promised"),
        (
            (f"{c['model']}, {c['clients']:,} clients", *(f"{c[k]:,}" for k in ("parameters", *MEMORY)))
            for c in result["cases"]
        ),
    )


GROWING = {"parameters": "parameters", "trial steps": "steps", "samples of each client": "samples"}
MEMORY = ("peak_mib", "predicted_mib", "promised_mib")
WORK = {"fedavg": "FedAvg round", "fupareto": "FUPareto round", "search": "losses at every step"}


def solver(result: Result) -> Iterable[str]:
    worst = {
        problem: max(row["error"] for row in result["ours"] if row["problem"] == problem)
        for problem in ("min-norm", "cone")
    }
    yield from (*SOLVER_IN_WORDS, "")
    yield f"{len(result['cases'])} cases: {'; '.join(result['cases'])}."
    yield f"Our largest error: {', '.join(f'{error:.0e} ({problem})' for problem, error in worst.items())}."
    yield ""
    yield from table(
        ("problem", "peer", "failed", "no descent where ours has", "largest error", "takes, of our time"),
        (_solver_row(*key, rows) for key, rows in _by_peer(result["rows"]).items()),
    )
    if "many" in result:
        heads = ("clients", "positive weights", "error", "seconds", "earlier", "times as fast")
        yield from ("", "With many clients, beside the solver of version 0.1, in turns:", "")
        yield from table(heads, map(_many_row, result["many"]))
    failures = [f"- {r['problem']}, {r['peer']}, {r['case']}: {r['failure']}" for r in result["rows"] if "failure" in r]
    if failures:
        yield from ("", "Failures:", "", *failures)
    yield from absent(result["skipped"])


def _many_row(row: Result) -> tuple[str, ...]:
    numbers = f"{row['clients']:,}", f"{row['active']:,}", f"{row['error']:.0e}", f"{row['seconds']['median']:.2f}"
    if "times_faster" not in row:
        return (*numbers, "not measured", "–")
    return (*numbers, f"{row['earlier_seconds']['median']:.2f}", f"{row['times_faster']['median']:.1f}")


def _by_peer(rows: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    found: dict[tuple[str, str], list[Result]] = {}
    for row in rows:
        found.setdefault((row["problem"], row["peer"]), []).append(row)
    return found


def _solver_row(problem: str, peer: str, rows: list[Result]) -> tuple[str, ...]:
    answered = [r for r in rows if "failure" not in r]
    stray = sum(r["ours_descends"] and not r["descends"] for r in answered if "descends" in r)
    quotients = [r["times_our_seconds"]["median"] for r in answered]
    taken = f"{median(quotients):.2g} ({min(quotients):.2g} to {max(quotients):.2g})" if quotients else "–"
    worst = f"{max(r['error'] for r in answered):.0e}" if answered else "–"
    return (
        problem,
        peer,
        f"{len(rows) - len(answered)} of {len(rows)}",
        str(stray) if problem == "min-norm" else "–",
        worst,
        taken,
    )


def flower(result: Result) -> Iterable[str]:
    yield f"The example app with {result['clients']} clients: ours, Flower's simulation, and deployments on loopback,"
    yield "in which every message starts a process. Seconds of a round, median after the first."
    yield ""
    methods = list(next(iter(result["engines"].values())))
    yield from table(
        ("", *methods),
        (
            (name, *(number(engine[method]["median"]) for method in methods))
            for name, engine in result["engines"].items()
        ),
    )
    imports = ", ".join(f"{name} {number(value)} s" for name, value in result["import_seconds"].items())
    yield from ("", f"Of which imports take, in each process: {imports}.")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def absent(skipped: dict[str, str]) -> Iterable[str]:
    if skipped:
        yield ""
        yield "Absent: " + "; ".join(f"{CONTENDERS.get(name, name)} ({why})" for name, why in skipped.items()) + "."


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def times(found: dict[str, float] | None) -> str:
    return "" if found is None else f"{found['median']:.2f} ({found['min']:.2f} to {found['max']:.2f})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=RESULTS.parent / "docs" / "performance.md")
    chosen = parser.parse_args(arguments)
    results = {path.stem: json.loads(path.read_text()) for path in sorted(chosen.results.glob("*.json"))}
    chosen.out.write_text(page(results))
    print(f"written: {chosen.out}")


if __name__ == "__main__":
    main()
