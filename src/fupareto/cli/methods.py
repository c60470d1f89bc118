"""The command methods: list methods, their requirements and options."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from fupareto.cli.common import Json

if TYPE_CHECKING:
    from fupareto.methods import Method

LINE = "{:<11}{:<20}{:<27}{}"
MOST = 3  # options of a preset shown in the list


def methods(
    name: Annotated[str | None, typer.Argument(help="One method, such as fedosd or fupareto:paper.")] = None,
    as_json: Json = False,
) -> None:
    """List the methods and their presets; with NAME, list the options of one method with their defaults."""
    from fupareto.methods.registry import METHODS

    found = [about(key, cls) for key, cls in METHODS.items()] if name is None else [_one(name)]
    if as_json:
        typer.echo(json.dumps(found if name is None else found[0], indent=2))
    elif name is None:
        _table(found)
    else:
        _options(found[0])


def about(name: str, cls: "type[Method]") -> dict[str, Any]:
    """Return the description, requirements, presets and options of a method."""
    from fupareto.methods.registry import VARIANTS

    hints = get_type_hints(cls)
    return {
        "name": name,
        "about": _first(cls),
        "needs": f"--record {cls.history}" if cls.history else "nothing",
        "forgets": ["clients"] if cls.whole_clients else ["clients", "samples", "classes"],
        "presets": cls.presets,
        "variants": {key: _first(variant) for key, variant in VARIANTS.items() if key.startswith(f"{name}:")},
        "options": {
            f.name: {
                "default": _default(f),
                "takes": _words(hints[f.name]),
                "from_training": f.name in cls.from_training,
            }
            for f in dataclasses.fields(cls)
        },
    }


def _first(cls: type) -> str:
    """Return the first line of a class's docstring."""
    return (cls.__doc__ or "").strip().splitlines()[0]


def _one(name: str) -> dict[str, Any]:
    """Return the description of one method, with the defaults of its preset if the name has one."""
    from fupareto.methods.registry import find, kind

    cls = kind(name)
    found = about(name, cls)
    required = [key for key, option in found["options"].items() if option["default"] is dataclasses.MISSING]
    if not required:
        made = find(name)
        for key, option in found["options"].items():
            option["default"] = getattr(made, key)
    for key in required:
        found["options"][key]["default"] = None
    return found


def _table(found: list[dict[str, Any]]) -> None:
    typer.echo(LINE.format("method", "from training", "forgets", "what it does"))
    for method in found:
        typer.echo(LINE.format(method["name"], method["needs"], ", ".join(method["forgets"]), method["about"]))
        for preset, options in method["presets"].items():
            changes = [f"{key}={_shown(value)}" for key, value in options.items()]
            more = f", … ({len(changes)} options)" if len(changes) > MOST else ""
            typer.echo(f"  {method['name']}:{preset:<8} with {', '.join(changes[:MOST])}{more}")
        for preset, words in method["variants"].items():
            typer.echo(f"  {preset:<17} {words}")
    typer.echo("\nOptions of a method: fupareto methods NAME. Your own method: --method package.module:Class.")


def _options(method: dict[str, Any]) -> None:
    from rich.table import Table

    from fupareto.report.terminal import show

    typer.echo(f"{method['name']}: {method['about']}")
    typer.echo(f"Needs from training: {method['needs']}. Forgets: {', '.join(method['forgets'])}.\n")
    table = Table("option", "default", "takes", box=None, pad_edge=False)
    for key, option in method["options"].items():
        inherited = " (or that of the training, if known)" if option["from_training"] else ""
        table.add_row(key, _shown(option["default"]) + inherited, option["takes"])
    show(table)
    if method["presets"]:
        names = ", ".join(f"{method['name'].partition(':')[0]}:{preset}" for preset in method["presets"])
        typer.echo(f"\nPresets: {names}")
    typer.echo("\nSet options with: fupareto unlearn RUN --method NAME --set option=value")


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    if get_args(hint):
        return " | ".join(_words(h) for h in get_args(hint))
    return {float: "number", int: "whole number", bool: "true | false", type(None): "none", str: "text"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )
