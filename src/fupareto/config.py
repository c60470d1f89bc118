"""Experiment files: TOML, validated; an empty one is the demo on the embedded digits."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from fupareto.errors import UserError, did_you_mean


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Data(_Section):
    """Which samples."""

    source: str = "digits"  # digits, fashion-mnist, cifar10, cifar100, gtsrb, or the path of an .npz file
    samples: int | None = Field(None, gt=0)  # a stratified subset; None: all


class Partition(_Section):
    """How samples fall to clients."""

    kind: Literal["dirichlet", "pat", "iid"] = "dirichlet"
    clients: int = Field(10, ge=2)
    alpha: float = Field(0.5, gt=0)  # of the Dirichlet partition
    classes_per_client: int = Field(2, ge=1)  # of the pathological partition
    balance: bool = True  # of the pathological partition


class Backdoor(_Section):
    """The trigger that makes forgetting measurable."""

    enabled: bool = True
    clients: list[str] | None = None  # who carries it; None: the clients of the request
    portion: float = Field(0.8, gt=0, le=1)  # of each training batch
    asr_split: Literal["train", "test"] = "train"


class Training(_Section):
    """FedAvg over all clients."""

    rounds: int = Field(200, gt=0)
    lr: float = Field(0.5, gt=0)
    decay: float = Field(0.999, gt=0, le=1)
    epochs: int = Field(1, gt=0)
    batch_size: int = Field(20, gt=0)
    participation: float = Field(1.0, gt=0, le=1)  # share of the clients that train in a round
    record: list[Literal["federaser", "fupga", "fedau"]] = []  # methods whose history is kept
    keep: int = Field(100, gt=0)  # rounds that FedEraser will replay


class Requested(_Section):
    """What is to be forgotten: clients (ids, or a number drawn by the seed), samples of clients, or classes."""

    samples: dict[str, list[int]] = {}  # client -> row numbers in its training data
    classes: list[int] = []
    clients: int | list[str] = 2

    @model_validator(mode="before")
    @classmethod
    def _one_kind(cls, raw: Any) -> Any:
        kinds = [k for k in ("clients", "samples", "classes") if isinstance(raw, dict) and raw.get(k)]
        if len(kinds) > 1:
            raise ValueError(f"names {' and '.join(kinds)}; a request is for one of them")
        return {"clients": [], **raw} if kinds in (["samples"], ["classes"]) else raw

    @field_validator("clients", mode="before")
    @classmethod
    def _ids_are_text(cls, value: Any) -> Any:
        return [str(v) for v in value] if isinstance(value, list) else value

    @field_validator("clients")
    @classmethod
    def _someone(cls, value: int | list[str], info: ValidationInfo) -> int | list[str]:
        number = value if isinstance(value, int) else len(value)
        if number < 1 and not info.data.get("samples") and not info.data.get("classes"):
            raise ValueError("names nobody; give ids, or a number of at least 1")
        return value


class Unlearning(_Section):
    """Which method forgets, with its options."""

    method: str = "fupareto"
    options: dict[str, Any] = Field(default_factory=lambda: {"lr": 0.1, "rounds": 80, "recovery_rounds": 20})


class Experiment(_Section):
    """A federation, its training and a request."""

    name: str = "demo"
    seed: int = Field(0, ge=0)
    data: Data = Data()
    partition: Partition = Partition()
    backdoor: Backdoor = Backdoor()
    model: str = "mlp"  # mlp, lenet5, cnn, nfresnet18, or package.module:function
    train: Training = Training()
    request: Requested = Requested()
    unlearn: Unlearning = Unlearning()

    @model_validator(mode="after")
    def _somebody_stays(self) -> "Experiment":
        asked = self.request.clients
        count = asked if isinstance(asked, int) else len(set(asked))
        if count >= self.partition.clients:
            raise ValueError(
                f"request.clients forgets {count} of {self.partition.clients} clients; nobody would be left"
            )
        return self


def load(path: Path) -> Experiment:
    """Read an experiment file; a relative .npz path is relative to the file."""
    raw = read(path, "experiment file")
    if is_bench(raw):
        raise UserError(f"{path} is a bench file, which compares methods; run it with: fupareto bench {path}")
    experiment = validate(raw, str(path))
    source = experiment.data.source
    if source.endswith(".npz") and not Path(source).is_absolute():
        data = experiment.data.model_copy(update={"source": str((path.parent / source).resolve())})
        experiment = experiment.model_copy(update={"data": data})
    return experiment


def read(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file as plain values."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise UserError(f"there is no {what} {path}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


def validate(raw: dict[str, Any], where: str) -> Experiment:
    """Turn plain values into an experiment, naming every wrong key at once."""
    try:
        return Experiment.model_validate(raw)
    except ValidationError as error:
        raise UserError(explain(error, where, Experiment)) from error


def is_bench(raw: dict[str, Any]) -> bool:
    """Return whether plain values are those of a bench file."""
    return not {"experiment", "settings", "methods"}.isdisjoint(raw)


def explain(error: ValidationError, where: str, model: type[BaseModel]) -> str:
    """Say in a line per mistake where it is and what would be right; ``model`` is what was read."""
    lines = []
    for mistake in error.errors():
        key = ".".join(str(part) for part in mistake["loc"] if part not in ("int", "list[str]")) or "the file"
        if mistake["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            lines.append(f"  {key}: unknown key{did_you_mean(mistake['loc'][-1], _known(model, mistake['loc']))}")
        else:
            message = mistake["msg"].removeprefix("Value error, ")
            if mistake["type"] == "literal_error":
                message += did_you_mean(mistake["input"], re.findall("'([^']*)'", mistake["ctx"]["expected"]))
            lines.append(f"  {key} = {mistake['input']!r}: {message}" if key != "the file" else f"  {message}")
    return f"{where} is not right:\n" + "\n".join(dict.fromkeys(lines))


def _known(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """Return the keys that there are beside the one at ``loc``, which names sections, list positions and names."""
    for part in loc[:-1]:
        found = model.model_fields.get(str(part))
        if found is not None:
            model = next(_sections(found.annotation), model)
    return list(model.model_fields)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections(inner)
