"""What does a user type? Thin commands; heavy imports happen inside them, so that --help is quick."""

import json
import shlex
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fupareto.errors import UserError

if TYPE_CHECKING:
    from fupareto.runs import Run

app = typer.Typer(
    help="Make a federated model forget clients, keep it useful for everyone else, and prove it.",
    epilog="Start with: fupareto demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="List data sets and download them.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Out = Annotated[Path, typer.Option(help="Run directory to write.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted or killed.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Root = Annotated[
    Path | None,
    typer.Option("--data", help="Directory of the data sets.", show_default="$FUPARETO_DATA or ~/.cache/fupareto/data"),
]


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Everything random comes from it.")] = 0,
    out: Out = Path("runs/demo"),
    resume: Resume = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train ten clients on real handwritten digits, forget two of them, and show the result (about a minute)."""
    from fupareto import experiment as experiments
    from fupareto.config import validate
    from fupareto.runs import Run

    experiment = validate({"seed": seed}, "--seed")
    if not resume and Run.begun(out / "training"):
        stored = experiments.stored_experiment(Run.open(out / "training"))
        if stored.model_copy(update={"seed": seed}) != experiment:
            raise UserError(f"{out} holds another run; choose another --out")
        shutil.rmtree(out)  # an earlier demo: made by this command, and made again in a minute
    if not (resume and Run.begun(out / "training")):
        Run.check_free(out)
    _say(quiet, f"Training {experiment.partition.clients} clients on {experiment.data.source}, seed {seed}.")
    experiments.train(experiment, out / "training", resume=resume, progress=_progress(quiet))
    forget = ", ".join(experiments.default_request(experiment).clients)
    _say(quiet, f"Clients {forget} carry a backdoor and ask to be forgotten.")
    _finish(experiments.unlearn(out / "training", out, resume=resume, progress=_progress(quiet)), as_json)


@app.command()
def train(
    experiment: Annotated[Path, typer.Argument(help="Experiment file (TOML); see experiments/.")],
    out: Out,
    seed: Annotated[int | None, typer.Option(help="Seed instead of the file's.")] = None,
    record: Annotated[
        str | None, typer.Option(help="Keep the history that methods need, e.g. federaser,fupga,fedau.")
    ] = None,
    resume: Resume = False,
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a federated model with FedAvg."""
    from fupareto import config
    from fupareto import experiment as experiments

    loaded = config.load(experiment)
    if seed is not None:
        loaded = config.validate({**loaded.model_dump(), "seed": seed}, "--seed")
    if record is not None:
        raw = loaded.model_dump()
        raw["train"]["record"] = _list(record)
        loaded = config.validate(raw, "--record")
    run = experiments.train(loaded, out, resume=resume, root=root, progress=_progress(quiet), say=partial(_say, quiet))
    _finish(run, as_json)


@app.command()
def unlearn(
    trained: Annotated[Path, typer.Argument(help="Run directory of a finished `fupareto train`.")],
    out: Out,
    clients: Annotated[
        str | None, typer.Option(help="Who is to be forgotten, e.g. 3,7.", show_default="the experiment's request")
    ] = None,
    samples: Annotated[
        Path | None, typer.Option(help='Samples to forget: JSON, client to row numbers, e.g. {"3": [0, 17]}.')
    ] = None,
    classes: Annotated[str | None, typer.Option(help="Classes to forget, e.g. 4 or 4,7.")] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Forget the clients one after the other, each from the last result.")
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(help="fupareto, fedosd, retrain, … (see docs/methods.md), or package.module:Class."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A method's option, e.g. --set lr=0.01 (repeatable).")
    ] = None,
    resume: Resume = False,
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Forget clients, recover, audit, and write the report."""
    from fupareto import experiment as experiments

    run = experiments.unlearn(
        trained,
        out,
        request=_request(clients, samples, classes),
        method=method,
        options=_options(set_ or []),
        sequential=sequential,
        resume=resume,
        root=root,
        progress=_progress(quiet),
    )
    _finish(run, as_json)


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(help="Run directory.")], root: Root = None, as_json: Json = False
) -> None:
    """Measure a run's models anew and write summary.json."""
    from fupareto import experiment
    from fupareto.runs import Run

    place = Run.open(run)
    experiment.audit(place, root)
    _finish(place, as_json)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Run directory.")]) -> None:
    """Write report.html, one page that opens offline."""
    from fupareto.runs import Run

    typer.echo(_report(Run.open(run)))


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[Path | None, typer.Option(help="Also write the comparison as an HTML page.")] = None,
    as_json: Json = False,
) -> None:
    """Show runs side by side."""
    from fupareto.runs import Run

    places = [Run.open(path) for path in runs]
    summaries = {str(place.path): place.summary for place in places}
    if out is not None:
        from fupareto.report import render_comparison

        html = render_comparison([(str(p.path), p.summary, p.rounds()) for p in places])
        try:
            out.write_text(html)
        except OSError as error:
            raise UserError(f"cannot write {out}: {error.strerror}") from error
        typer.echo(f"Comparison: {out}", err=True)
    if as_json:
        typer.echo(json.dumps(summaries, indent=2))
    else:
        from fupareto import paper
        from fupareto.report.table import comparison_table, show

        beside = {str(p.path): paper.beside(summaries[str(p.path)], p.config.get("method", {})) for p in places}
        show(comparison_table(summaries, beside))
        if any(beside.values()):
            typer.echo(f"Paper: {paper.citation()}, Table I, at the same data set, number of clients and method.")


@app.command()
def bench(
    file: Annotated[Path, typer.Argument(help="Bench file (TOML): methods, settings and seeds; see experiments/.")],
    out: Annotated[Path | None, typer.Option(help="Directory to write.", show_default="runs/bench/NAME")] = None,
    scale: Annotated[
        str, typer.Option(help="full, or a smaller one of the file's: small is done in minutes.")
    ] = "full",
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run many methods on the same models, beside the paper's numbers; the same command again goes on."""
    from fupareto import paper, progress
    from fupareto.bench import file as files
    from fupareto.bench import output
    from fupareto.bench import run as benches

    loaded = files.load(file, scale)
    paper.check(loaded.paper, (m.paper for m in loaded.methods), (s.paper for s in loaded.settings))
    place = out or Path("runs/bench") / (loaded.name if scale == "full" else f"{loaded.name}-{scale}")
    known = output.known(place)
    found: list[dict[str, Any]] = []
    cells = [(f"{c.setting.name}, seed {c.seed}", c.entry.label) for c in files.cells(loaded, place)]
    with progress.bench(cells, quiet) as board:

        def done(cell: files.Cell, result: dict[str, Any]) -> None:
            found.append(result)
            board.done(result)
            if len(found) > known:  # what an interrupted bench knew is not given up before it is known again
                output.keep(place, benches.results(loaded, scale, found))

        benches.run(loaded, place, root=root, progress=board.rounds, say=board.say, done=done)
    results = benches.results(loaded, scale, found)
    written = [output.keep(place, results), *output.write(place, results, benches.curves(loaded, place))]
    if as_json:
        typer.echo(json.dumps(results, indent=2))
        return
    from fupareto.report.bench import terminal
    from fupareto.report.table import show

    show(*terminal(results))
    typer.echo("\n".join(map(str, written)))


@data_app.command("list")
def data_list(root: Root = None) -> None:
    """Say which data sets there are, and which are on disk."""
    from fupareto.data import SOURCES, status

    found = status(root)
    for name, about in SOURCES.items():
        typer.echo(f"{name:14} {about}\n{'':14} {found[name]}")


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="fashion-mnist, cifar10, cifar100 or gtsrb.")],
    root: Root = None,
    quiet: Quiet = False,
) -> None:
    """Download a public data set, check it and unpack it; an interrupted download continues."""
    from fupareto.data.download import get
    from fupareto.progress import download

    with download(quiet) as show:
        typer.echo(get(name, root, show))


def main() -> None:
    """Run the command; exit code 2 for the user's mistake, 130 when interrupted, 1 for ours."""
    try:
        app()
    except UserError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as ended:  # typer turns Ctrl-C into exit code 130
        if isinstance(ended, SystemExit) and ended.code != 130:
            raise
        typer.echo("\nInterrupted. Every finished round is on disk.", err=True)
        if sys.argv[1:2] in (["demo"], ["train"], ["unlearn"], ["bench"]):
            again = [a for a in sys.argv[1:] if a != "--resume"]
            again += ["--resume"] if again[0] != "bench" else []
            typer.echo(f"Continue with: fupareto {shlex.join(again)}", err=True)
        sys.exit(130)


def _progress(quiet: bool) -> Any:
    from fupareto.progress import rounds

    return partial(rounds, quiet=quiet)


def _finish(run: "Run", as_json: bool) -> None:
    """Write the report and show the result."""
    path = _report(run)
    if as_json:
        typer.echo(json.dumps(run.summary, indent=2))
        return
    from fupareto.report.table import show, stage_table

    show(stage_table(run.summary))
    if run.summary["verdict"]:
        typer.echo(run.summary["verdict"])
    typer.echo(f"Summary: {run.path / 'summary.json'}\nReport:  {path}")


def _report(run: "Run") -> Path:
    from fupareto.report import render

    return run.save_report(render(run.summary, run.rounds(), run.config))


def _options(pairs: list[str]) -> dict[str, Any]:
    """Read key=value pairs as TOML has them; a bare word is text."""
    import tomllib

    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"--set takes key=value, not {pair!r}")
        try:
            options[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            options[key] = value
    return options


def _request(clients: str | None, samples: Path | None, classes: str | None) -> Any:
    """Read what is to be forgotten; None where nothing was said."""
    if (clients, samples, classes) == (None, None, None):
        return None
    from fupareto.federation import Request

    rows: dict[str, tuple[int, ...]] = {}
    if samples is not None:
        try:
            raw = json.loads(samples.read_text())
            if not isinstance(raw, dict):
                raise ValueError(f"it holds a {type(raw).__name__}")
            rows = {str(i): tuple(numbers) for i, numbers in raw.items()}
            if not rows or not all(type(n) is int for numbers in rows.values() for n in numbers):
                raise ValueError("row numbers are whole numbers")
        except OSError as error:
            raise UserError(f"cannot read {samples}: {error.strerror}") from error
        except (ValueError, AttributeError, TypeError) as error:
            raise UserError(
                f'{samples} must be JSON that maps clients to row numbers, such as {{"3": [0, 17]}}: {error}'
            ) from error
    try:
        numbers = tuple(dict.fromkeys(int(c) for c in _list(classes or "")))
    except ValueError as error:
        raise UserError(f"--classes takes numbers, such as 4 or 4,7, not {classes!r}") from error
    if classes is not None and not numbers:
        raise UserError("--classes names no class; give numbers, such as 4 or 4,7")
    return Request(tuple(dict.fromkeys(_list(clients or ""))), rows, numbers)


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        typer.echo(text, err=True)
