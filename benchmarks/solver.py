"""Are the direction solvers exact and quick, also where Gram matrices are degenerate? Beside the solvers people use.

    python benchmarks/solver.py [--tiny] [--out benchmarks/solver.json]

Three problems, each on Gram matrices as federations make them. *min-norm*: the shortest vector in the convex hull of
the gradients (MGDA). *cone*: the nearest vector to each forget gradient that no retained gradient opposes. *null
space*: the forget gradients with every retained gradient projected out. Peers of the first two are quadratic solvers
through qpsolvers at their default settings, and TorchJD's MGDA (Frank-Wolfe) and its projector onto the dual cone,
which UPGrad uses; of the third, least squares and an orthonormal basis in parameter space.

An answer's error is by how much it violates feasibility or optimality (the duality gap), relative to the square of the
longest gradient; a min-norm direction should also descend on every objective, if any does. A peer fails where it
raises, says that it found nothing, answers with NaN, crashes or hangs; it works in a process of its own, in turns with
ours, so that neither does harm.
"""

import argparse
import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.optimize import nnls

from common import RESULTS, TimedOut, isolated, ratios, seconds, skip, spread, version, write
from fupareto.pareto import Array, guidance, into_cone, min_norm, project_out

LIMIT = 20.0  # seconds for a peer and a case
QUADRATIC = {  # name in qpsolvers -> package
    "quadprog": "quadprog",
    "cvxopt": "cvxopt",
    "clarabel": "clarabel",
    "osqp": "osqp",
    "proxqp": "proxsuite",
    "piqp": "piqp",
    "daqp": "daqp",
}


@dataclass(frozen=True)
class Case:
    """A federation's gradients (m, n); the first ``forget`` rows are the forget clients'."""

    name: str
    rows: Array
    forget: int

    @property
    def gram(self) -> Array:
        return np.asarray(self.rows @ self.rows.T, dtype=np.float64)


def make_cases(tiny: bool) -> list[Case]:
    """Return gradients as they occur: with a common part, and degenerate in each way that rounds produce."""
    rng = np.random.default_rng(0)

    def clients(m: int, n: int = 1000) -> Array:
        return np.asarray(rng.normal(size=(m, n)) + 0.3 * rng.normal(size=n), dtype=np.float64)

    found = [Case(f"random, {m}", clients(m), m // 4) for m in ((5,) if tiny else (20, 50, 200))]
    m = 5 if tiny else 20
    few = m // 4
    guided = clients(m)
    h = guidance(rng.random(m) + 0.1, (np.arange(m) >= few).astype(np.float64))
    assert h is not None
    doubled, dead, close, apart = clients(m), clients(m), clients(m), clients(m)
    doubled[few + 1] = doubled[few]
    dead[-1] = 0.0
    close = close[-1] + 1e-5 * close
    apart *= 10.0 ** -np.linspace(0, 6, m)[:, None]
    return [
        *found,
        Case("guidance row", np.vstack([guided, h @ guided]), few),
        Case("twins", doubled, few),
        Case("more clients than dimensions", clients(m, m // 2), few),
        Case("a zero row", dead, few),
        Case("near-collinear", close, few),
        Case("norms six decades apart", apart, few),
        Case("short gradients, 1e-5 of the first case", found[0].rows * 1e-5, found[0].forget),
        Case("all zero", np.zeros((m, 10)), few),
    ]


def hull_error(case: Case, weights: Array) -> float:
    """Return by how much the weights are infeasible or not optimal, relative to the longest gradient's square."""
    K = case.gram
    gap = (weights @ K @ weights - (K @ weights).min()) / max(float(K.diagonal().max()), 1e-300)
    return float(max(gap, abs(weights.sum() - 1.0), -weights.min()))


def descends(case: Case, weights: Array) -> bool:
    """Return whether a step against the direction lowers every objective, to first order."""
    K = case.gram
    slopes = (K @ weights) / np.sqrt(np.maximum(K.diagonal() * (weights @ K @ weights), 1e-300))
    return bool(slopes.min() > 1e-9)


def cone_error(case: Case, rows: Array) -> float:
    """Return how far the rows (forget, m) are from the conditions of optimality, relative likewise."""
    K, worst = case.gram, 0.0
    for u in range(case.forget):
        multipliers, slopes = rows[u, case.forget :], (K @ rows[u])[case.forget :]
        scale = max(float(K.diagonal().max()), 1e-300)
        worst = max(worst, -multipliers.min(), -slopes.min() / scale, abs(multipliers @ slopes) / scale)
    return float(worst)


def our_hull(case: Case) -> Array:
    return min_norm(case.gram)


def our_cone(case: Case) -> Array:
    return into_cone(case.gram, range(case.forget), range(case.forget, len(case.rows)))


def quadratic_hull(solver: str, case: Case) -> Array:
    from qpsolvers import solve_qp

    m = len(case.rows)
    found = solve_qp(case.gram, np.zeros(m), A=np.ones((1, m)), b=np.ones(1), lb=np.zeros(m), solver=solver)
    if found is None:
        raise ValueError("no solution found")
    return np.asarray(found, dtype=np.float64)


def quadratic_cone(solver: str, case: Case) -> Array:
    from qpsolvers import solve_qp

    K, kept = case.gram, slice(case.forget, None)
    rows = np.eye(len(K))[: case.forget]
    for u in range(case.forget):
        # Contiguous, for daqp reads the buffer and not the array.
        P, q = np.ascontiguousarray(K[kept, kept]), np.ascontiguousarray(K[kept, u])
        found = solve_qp(P, q, lb=np.zeros(len(q)), solver=solver)
        if found is None:
            raise ValueError("no solution found")
        rows[u, kept] = found
    return rows


def torchjd_hull(_: str, case: Case) -> Array:
    from torchjd.aggregation import MGDAWeighting

    return np.asarray(MGDAWeighting()(torch.tensor(case.gram)).numpy(), dtype=np.float64)


def torchjd_cone(_: str, case: Case) -> Array:
    """Project each target onto the dual cone of itself and the retained: its own slope is never negative anyway."""
    from torchjd.linalg import QuadprogProjector

    rows = np.zeros((case.forget, len(case.rows)))
    for u in range(case.forget):
        part = [u, *range(case.forget, len(case.rows))]
        unit = torch.eye(len(part), dtype=torch.float64)[0]
        rows[u, part] = QuadprogProjector()(unit, torch.tensor(case.gram[np.ix_(part, part)])).numpy()
    return rows


def finite(weights: Array) -> Array:
    if not np.isfinite(weights).all():
        raise ValueError("the answer is not finite")
    return weights


def compare(problem: str, peer: str, case: Case, repeats: int) -> dict[str, Any]:
    """Solve with the peer and with ours in turns; called in a fresh process, so one thread each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ours, error = {"min-norm": (our_hull, hull_error), "cone": (our_cone, cone_error)}[problem]
    theirs: Callable[[str, Case], Array] = {
        ("min-norm", True): torchjd_hull,
        ("min-norm", False): quadratic_hull,
        ("cone", True): torchjd_cone,
        ("cone", False): quadratic_cone,
    }[problem, peer == "torchjd"]
    answers = finite(theirs(peer, case)), ours(case)
    found: dict[str, Any] = {"error": error(case, answers[0]), "our_error": error(case, answers[1])}
    if problem == "min-norm":
        found |= {"descends": descends(case, answers[0]), "ours_descends": descends(case, answers[1])}
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        times[0].append(seconds(lambda: theirs(peer, case)))
        times[1].append(seconds(lambda: ours(case)))
    return {
        **found,
        "seconds": spread(times[0]),
        "our_seconds": spread(times[1]),
        "times_our_seconds": ratios(*times),
    }


def judged(problem: str, peer: str, case: Case, repeats: int) -> dict[str, Any]:
    """Compare, and say how the peer failed if it did."""
    row: dict[str, Any] = {"problem": problem, "peer": peer, "case": case.name}
    try:
        row |= isolated(compare, problem, peer, case, repeats, limit=LIMIT)
    except TimedOut:
        return {**row, "failure": f"hangs: no answer after {LIMIT:g} s"}
    except RuntimeError as error:
        return {**row, "failure": str(error).splitlines()[0][:80]}
    return row


def null_space(case: Case, repeats: int) -> list[dict[str, Any]]:
    """Compare project_out with two ways in parameter space: how orthogonal the results are, and the time."""
    rows, span = case.rows[: case.forget], case.rows[case.forget :]

    def ours() -> Array:
        targets, others = range(case.forget), range(case.forget, len(case.rows))
        return np.asarray(project_out(case.rows @ case.rows.T, targets, others) @ case.rows, dtype=np.float64)

    def least_squares() -> Array:
        return np.asarray(rows - (span.T @ np.linalg.lstsq(span.T, rows.T)[0]).T, dtype=np.float64)

    def basis() -> Array:
        q = np.linalg.qr(span.T)[0]
        return np.asarray(rows - rows @ q @ q.T, dtype=np.float64)

    peers = {"least squares": least_squares, "orthonormal basis": basis}
    times: dict[str, list[float]] = {"ours": [], **{name: [] for name in peers}}
    for _ in range(repeats):
        for name, work in {"ours": ours, **peers}.items():
            times[name].append(seconds(work))
    lengths = np.maximum(np.linalg.norm(span, axis=1) * np.linalg.norm(rows, axis=1).max(), 1e-300)
    errors = {name: float(np.abs(work() @ span.T / lengths).max()) for name, work in {"ours": ours, **peers}.items()}
    return [
        {
            "problem": "null space",
            "peer": name,
            "case": case.name,
            "error": errors[name],
            "our_error": errors["ours"],
            "seconds": spread(times[name]),
            "our_seconds": spread(times["ours"]),
            "times_our_seconds": ratios(times[name], times["ours"]),
        }
        for name in peers
    ]


def earlier(gram: Array) -> Array:
    """Return the min-norm weights as version 0.1 computed them, on a factor of the whole matrix."""
    norms = np.sqrt(gram.diagonal())
    factor, pivots, rank, _ = lapack.dpstrf(gram / norms / norms[:, None])
    root = np.zeros((rank, len(gram)))
    root[:, pivots - 1] = np.triu(factor)[:rank]
    inverse = norms.min() / norms
    solution, _ = nnls(np.vstack([root, inverse]), np.append(np.zeros(rank), 1.0), maxiter=100 * len(norms))
    return np.asarray(solution * inverse / (solution @ inverse))


def many(sizes: Sequence[int], compared: int, parameters: int) -> list[dict[str, Any]]:
    """Measure the solver with many clients, up to ``compared`` of them in turns with the earlier one.

    Gradients have a common part and norms within a decade; about half of the weights are positive.
    """
    rows = []
    for size in sizes:
        rng = np.random.default_rng(size)
        gradients = rng.normal(size=(size, parameters)) + 0.05 * rng.normal(size=parameters)
        gradients *= 10.0 ** -rng.random((size, 1))
        case = Case(f"{size:,} clients", gradients, 0)
        matrix = case.gram
        weights = min_norm(matrix)
        row: dict[str, Any] = {"clients": size, "active": int((weights > 0).sum()), "error": hull_error(case, weights)}
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(3 if size <= compared else 1):
            times[1].append(seconds(partial(min_norm, matrix)))
            if size <= compared:
                times[0].append(seconds(partial(earlier, matrix)))
        row |= {"seconds": spread(times[1])}
        rows.append(row | ({"earlier_seconds": spread(times[0]), "times_faster": ratios(*times)} if times[0] else {}))
        print(f"  {rows[-1]}", flush=True)
    return rows


def installed() -> tuple[list[str], dict[str, str]]:
    """Return the peers that are there, and why the others are not."""
    packages = {**QUADRATIC, "torchjd": "torchjd"}
    absent = {name: package for name, package in packages.items() if version(package) is None}
    if version("qpsolvers") is None:
        absent |= dict.fromkeys(QUADRATIC, "qpsolvers")
    why = {n: skip(n, f"{package} not installed (pip install 'fupareto[bench]')") for n, package in absent.items()}
    return [name for name in packages if name not in absent], why


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "solver.json")
    chosen = parser.parse_args(arguments)
    repeats = 2 if chosen.tiny else 20
    module = importlib.import_module("solver")  # not __main__, so that a fresh process finds what it is sent
    cases = module.make_cases(chosen.tiny)
    peers, skipped = installed()
    ours = [
        {"problem": problem, "case": case.name, "error": error(case, solve(case))}
        for problem, solve, error in (("min-norm", our_hull, hull_error), ("cone", our_cone, cone_error))
        for case in cases
    ]
    crowds = many((50, 100), 100, 80) if chosen.tiny else many((1000, 2000, 10_000), 2000, 9000)
    rows = [row for case in cases for row in null_space(case, repeats)]
    for problem in ("min-norm", "cone"):
        for peer in peers:
            found = [module.judged(problem, peer, case, repeats) for case in cases]
            print(f"  {problem}, {peer}: {sum('failure' in row for row in found)} of {len(cases)} failed", flush=True)
            rows += found
    write(
        chosen.out,
        {
            "cases": [case.name for case in cases],
            "repeats": repeats,
            "ours": ours,
            "many": crowds,
            "rows": rows,
            "skipped": skipped,
        },
        ("qpsolvers", *QUADRATIC.values(), "torchjd"),
    )


if __name__ == "__main__":
    main()
