"""How is a method found by what the user typed? ``fupareto``, ``fupareto:paper``, or ``package.module:Class``."""

import dataclasses
import difflib
import importlib
from collections.abc import Mapping
from typing import Any

from fupareto.errors import UserError
from fupareto.methods.base import Method
from fupareto.methods.fedau import FedAU
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.fededitor import FedEditor
from fupareto.methods.federaser import FedEraser
from fupareto.methods.fedosd import FedOSD
from fupareto.methods.finetune import FineTune
from fupareto.methods.fugas import FUGAS
from fupareto.methods.fupareto.method import FUPareto
from fupareto.methods.fupga import FUPGA
from fupareto.methods.mode import MoDe
from fupareto.methods.negate import NoT
from fupareto.methods.renew import Renew
from fupareto.methods.retrain import Retrain

_ALL = (FUPareto, Renew, Retrain, FedEraser, FUPGA, FedEditor, MoDe, FedAU, FUGAS, FedOSD, NoT, FineTune, FedAvg)
METHODS: dict[str, type[Method]] = {m.name: m for m in _ALL}


def kind(name: str) -> type[Method]:
    """Return the class of the method called ``name``, whatever the preset."""
    base = name.partition(":")[0]
    return METHODS[base] if base in METHODS else _imported(name)


def find(name: str, options: Mapping[str, Any] | None = None) -> Method:
    """Return the method called ``name`` with ``options``; a preset (``fupareto:paper``) is overridden by options."""
    options, cls = dict(options or {}), kind(name)
    base, _, rest = name.partition(":")
    if rest and base in METHODS:
        if rest not in cls.presets:
            known = ", ".join(f"{base}:{p}" for p in cls.presets) or "none"
            raise UserError(f"method '{base}' has no preset '{rest}'; there are: {known}")
        options = {**cls.presets[rest], **options}
    _check(cls, options)
    try:
        return cls(**options)
    except (TypeError, ValueError) as error:  # TypeError: an abstract class, or an option without a default
        raise UserError(f"method '{name}': {error}") from error


def _imported(name: str) -> type[Method]:
    module, _, attribute = name.partition(":")
    if not attribute:
        raise UserError(f"unknown method '{name}'; there are {', '.join(METHODS)}, or package.module:Class")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise UserError(f"method '{name}' could not be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise UserError(f"method '{name}' is not a subclass of fupareto.methods.base.Method")
    return found


def _check(cls: type[Method], options: Mapping[str, Any]) -> None:
    """Refuse unknown options, saying what would be right."""
    known = [f.name for f in dataclasses.fields(cls)]
    for key in options:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"it has {', '.join(known)}"
            raise UserError(f"method '{cls.name}' has no option '{key}'; {hint}")
