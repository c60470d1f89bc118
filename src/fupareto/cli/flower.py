"""The commands flower …: help for a Flower deployment."""

import typer

app = typer.Typer(help="Help for a Flower deployment.", no_args_is_help=True)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
)
def warm(context: typer.Context) -> None:
    """Run a SuperNode whose ClientApps start in a fraction of a second.

    Write the SuperNode's own command after two dashes: fupareto flower warm -- flower-supernode --superlink ...
    """
    from fupareto.errors import UserError
    from fupareto.flower.warm.owner import run

    if not context.args:
        raise UserError("name the command to run: fupareto flower warm -- flower-supernode --superlink HOST:PORT …")
    raise typer.Exit(run(context.args))
