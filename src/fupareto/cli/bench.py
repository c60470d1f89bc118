"""The command bench: compare methods."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fupareto.cli.common import Device, Json, Quiet, Root, Yes


def bench(
    file: Annotated[Path, typer.Argument(help="Bench file (TOML): methods, settings and seeds; see experiments/.")],
    out: Annotated[Path | None, typer.Option(help="Directory to write.", show_default="runs/bench/NAME")] = None,
    scale: Annotated[
        str, typer.Option(help="full, or a smaller scale that the file defines; small takes minutes.")
    ] = "full",
    reuse: Annotated[
        list[Path] | None,
        typer.Option(help="results.json with cells that were measured elsewhere, and are not run again. Repeatable."),
    ] = None,
    root: Root = None,
    device: Device = "cpu",
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare methods on the same initial models, and with the paper's numbers; run it again to continue."""
    from fupareto import experiment as experiments
    from fupareto import paper, progress
    from fupareto.bench import file as files
    from fupareto.bench import output, stored
    from fupareto.bench import reuse as others
    from fupareto.bench import run as benches

    loaded = files.load(file, scale)
    paper.check(loaded.paper, (m.paper for m in loaded.methods), (s.paper for s in loaded.settings))
    place = out or Path("runs/bench") / (loaded.name if scale == "full" else f"{loaded.name}-{scale}")
    known, elsewhere = output.known(place), others.read(reuse or [])
    found: list[dict[str, Any]] = []
    cells = [(f"{c.setting.name}, seed {c.seed}", c.entry.label) for c in files.cells(loaded, place)]
    with progress.bench(cells, quiet) as board:

        def done(cell: files.Cell, result: dict[str, Any]) -> None:
            found.append(result)
            board.done(result)
            if len(found) > known:  # keep the results of an interrupted bench until they are complete again
                output.keep(place, benches.results(loaded, scale, found))

        # Nobody is asked: a question would stand in the live table.
        host = experiments.Host(root, device, board.rounds, board.say, agree=lambda sentence: yes)
        benches.run(loaded, place, host=host, done=done, known=elsewhere)
    results = benches.results(loaded, scale, found)
    written = [output.keep(place, results), *output.write(place, results, stored.curves(results, place))]
    if as_json:
        typer.echo(json.dumps(results, indent=2))
        return
    from fupareto.report.bench.tables import terminal
    from fupareto.report.terminal import show

    show(*terminal(results))
    typer.echo("\n".join(map(str, written)))
