"""Registry of methods by name: ``fupareto``, a preset such as ``fupareto:paper``, or ``package.module:Class``."""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from fupareto.errors import UserError, did_you_mean
from fupareto.methods.base import Method
from fupareto.methods.fedau import FedAU
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.fededitor import FedEditor
from fupareto.methods.federaser import FedEraser
from fupareto.methods.fedosd import FedOSD
from fupareto.methods.finetune import FineTune
from fupareto.methods.fugas import FUGAS
from fupareto.methods.fupareto import FUPareto, NaiveDescent
from fupareto.methods.fupga import FUPGA
from fupareto.methods.mode import MoDe
from fupareto.methods.negate import NoT
from fupareto.methods.renew import Renew
from fupareto.methods.retrain import Retrain
from fupareto.methods.rewind import Rewind
from fupareto.methods.ridge import Ridge

_ALL = (
    FUPareto, Renew, Retrain, Rewind, Ridge, FedEraser, FUPGA, FedEditor, MoDe, FedAU, FUGAS, FedOSD, NoT, FineTune,
    FedAvg,
)  # fmt: skip
METHODS: dict[str, type[Method]] = {m.name: m for m in _ALL}
VARIANTS: dict[str, type[Method]] = {"fupareto:m1": NaiveDescent}  # presets that are classes of their own


def kind(name: str) -> type[Method]:
    """Return the class of the method ``name``, which may include a preset."""
    if name in VARIANTS:
        return VARIANTS[name]
    base = name.partition(":")[0]
    return METHODS[base] if base in METHODS else _imported(name)


def built_in(name: str) -> bool:
    """Return whether ``name`` is a method of this package, with or without a preset; others are imported."""
    return name in VARIANTS or name.partition(":")[0] in METHODS


def find(name: str, options: Mapping[str, Any] | None = None, training: FedAvg | None = None) -> Method:
    """Return a method by name.

    Args:
        name: Name of the method, with a preset (``fupareto:paper``) or as ``package.module:Class``.
        options: Options, which override those of the preset.
        training: Training of the initial model, if known: options in ``Method.from_training`` default to its own.
    """
    options, cls = dict(options or {}), kind(name)
    base, _, rest = name.partition(":")
    if rest and base in METHODS and name not in VARIANTS:
        if rest not in cls.presets:
            known = presets(base)
            hint = did_you_mean(name, known)
            raise UserError(f"method '{base}' has no preset '{rest}'; there are: {', '.join(known) or 'none'}{hint}")
        options = {**cls.presets[rest], **options}
    if training is not None:
        followed = {**dataclasses.asdict(training), "training": training}
        options = {**{key: followed[key] for key in cls.from_training}, **options}
    _check(cls, options)
    if isinstance(options.get("training"), Mapping):
        options["training"] = _training(options["training"], training or FedAvg())
    try:
        return cls(**options)
    except (TypeError, ValueError) as error:  # TypeError: an abstract class, or an option without a default
        raise UserError(f"method '{name}': {error}") from error


def presets(base: str) -> list[str]:
    """Return the names of the presets of a method, as ``method:preset``."""
    return sorted([*(v for v in VARIANTS if v.startswith(f"{base}:")), *(f"{base}:{p}" for p in METHODS[base].presets)])


def chosen(method: Any, default: type[Method], training: FedAvg | None = None) -> tuple[Method, str]:
    """Return the method that a user chose, and its name.

    Args:
        method: A Method, a name, or None for the default.
        default: Class of the default method.
        training: Training of the initial model, if known. A method given by name takes its ``from_training`` options
            from it, a Method that needs to know the training and does not say it takes the training.
    """
    if method is None:
        method = default.name
    if isinstance(method, Method):
        follows = "training" in method.from_training and getattr(method, "training", training) is None
        return dataclasses.replace(method, training=training) if follows else method, method.name  # type: ignore[call-arg]
    if isinstance(method, str):
        return find(method, training=training), method
    if isinstance(method, type) and issubclass(method, Method):
        raise UserError(f"method must be an object, not a class: write method={method.__name__}(), with parentheses")
    raise UserError(
        f'method must be a Method such as FUPareto(), or a name such as "fedosd", not a {type(method).__name__}'
    )


def _imported(name: str) -> type[Method]:
    module, _, attribute = name.partition(":")
    if not attribute:
        hint = did_you_mean(name, METHODS)
        raise UserError(f"unknown method '{name}'; there are {', '.join(METHODS)}, or package.module:Class{hint}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise UserError(f"method '{name}' could not be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise UserError(f"method '{name}' is not a subclass of fupareto.methods.base.Method")
    return found


def _training(options: Mapping[str, Any], known: FedAvg) -> FedAvg:
    """Return the known training with other options."""
    try:
        _check(FedAvg, options)
        return dataclasses.replace(known, **options)
    except (UserError, ValueError) as error:
        raise UserError(f"option 'training': {error}") from error


def _check(cls: type[Method], options: Mapping[str, Any]) -> None:
    """Raise UserError for unknown options."""
    fields = sorted(dataclasses.fields(cls), key=lambda f: bool(f.kw_only))  # those of the class first
    known = [f.name for f in fields]
    for key in options:
        if key not in known:
            hint = did_you_mean(key, known) or f"; it has {', '.join(known)}"
            raise UserError(f"method '{cls.name}' has no option '{key}'{hint}")
