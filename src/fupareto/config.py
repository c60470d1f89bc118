"""Experiment files: reading and validation.

An experiment file is TOML with the sections of :class:`Experiment`. Every key has a default; an empty file is the demo
on the embedded digits.
"""

import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from fupareto import documents
from fupareto.errors import UserError
from fupareto.mistakes import SHORT, explain
from fupareto.vocabulary import DATA_FILES, LARGEST_SETTING, MOST_KEPT

MOST_CLIENTS = 100_000
LARGEST_LIST = 1000  # columns that are targets

Name = Annotated[str, Field(max_length=documents.LONGEST_NAME)]
Count = Annotated[int, Field(gt=0, le=LARGEST_SETTING)]
Row = Annotated[int, Field(le=LARGEST_SETTING)]  # negative ones are refused with the number of samples


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Data(_Section):
    """Section ``[data]``: the data set.

    Attributes:
        source: Name of a data set (digits, breast-cancer, diabetes, stdlib, fashion-mnist, cifar10, cifar100, gtsrb),
            the path of an .npz or .csv file, or that of a directory with one entry of text per client.
        samples: Size of a stratified subset; None takes all samples.
        target: Target column of a .csv file, or several; None: the first of labels, label, targets, target and y.
        client: Column of a .csv file that says which client owns the row; None: client, if there is one.
    """

    source: str = Field("digits", max_length=4096)
    samples: Count | None = None
    target: Name | Annotated[list[Name], Field(min_length=1, max_length=LARGEST_LIST)] | None = None
    client: Name | None = None

    @model_validator(mode="after")
    def _has_columns(self) -> "Data":
        given = [key for key in ("target", "client") if getattr(self, key)]
        if given and not self.source.endswith(".csv"):
            raise ValueError(f"{' and '.join(given)} name columns of a .csv file, and source = {self.source!r} is none")
        return self


class Partition(_Section):
    """Section ``[partition]``: how samples are divided among clients.

    Attributes:
        kind: dirichlet, pat (pathological: a few classes per client), iid, or given, where the data say which client
            owns which rows: the array or column ``client`` of a file, the entries of a directory of text.
        clients: Number of clients.
        alpha: Concentration of the Dirichlet partition.
        classes_per_client: Classes of each client in the pathological partition.
        balance: Whether the pathological partition divides a class into equal parts.
    """

    kind: Literal["dirichlet", "pat", "iid", "given"] = "dirichlet"
    clients: int = Field(10, ge=2, le=MOST_CLIENTS)
    alpha: float = Field(0.5, gt=0, le=1e6)
    classes_per_client: Count = 2
    balance: bool = True


class Backdoor(_Section):
    """Section ``[backdoor]``: the trigger that makes forgetting measurable.

    Attributes:
        enabled: Whether there is a backdoor.
        clients: Clients that carry it; None means the clients of the request.
        portion: Share of each training batch that carries the trigger.
        asr_split: Data on which the attack success rate is measured.
    """

    enabled: bool = True
    clients: list[Name] | None = None
    portion: float = Field(0.8, gt=0, le=1)
    asr_split: Literal["train", "test"] = "train"


class Training(_Section):
    """Section ``[train]``: FedAvg over all clients.

    Attributes:
        rounds: Number of rounds.
        lr: Learning rate of the first round.
        decay: Factor on the learning rate after every round.
        epochs: Local epochs per round.
        batch_size: Local batch size.
        participation: Share of the clients that train in a round.
        aggregation: Mean of the local models: mean, trimmed or median.
        method: fedavg, or ridge: a last layer from sums of features, which forgets exactly.
        optimizer: sgd, adam or adamw; its state starts anew in every round.
        momentum: Momentum of SGD.
        weight_decay: Weight decay.
        clip: Largest norm of a batch's gradient; None for any.
        shuffle: Whether clients train on their samples in a new random order for every epoch.
        record: Unlearning methods whose training history is recorded.
        keep: Number of rounds that are recorded for FedEraser.
    """

    rounds: Count = 200
    lr: float = Field(0.5, gt=0, le=LARGEST_SETTING)
    decay: float = Field(0.999, gt=0, le=1)
    epochs: Count = 1
    batch_size: Count = 20
    participation: float = Field(1.0, gt=0, le=1)
    aggregation: Literal["mean", "trimmed", "median"] = "mean"
    method: Literal["fedavg", "ridge"] = "fedavg"
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0, le=LARGEST_SETTING)
    clip: float | None = Field(None, gt=0, le=LARGEST_SETTING)
    shuffle: bool = False
    record: list[Literal["federaser", "fupga", "fedau", "rewind", "ridge"]] = []
    keep: int = Field(100, gt=0, le=MOST_KEPT)


class Requested(_Section):
    """Section ``[request]``: what is to be forgotten, of one kind.

    Attributes:
        samples: Mapping from client id to row numbers in its training data.
        classes: Classes.
        clients: Ids of clients, or a number of clients that are drawn by the seed.
    """

    samples: dict[Name, list[Row]] = {}
    classes: list[Row] = []
    clients: int | list[Name] = 2

    @model_validator(mode="before")
    @classmethod
    def _one_kind(cls, raw: Any) -> Any:
        kinds = [k for k in ("clients", "samples", "classes") if isinstance(raw, dict) and raw.get(k)]
        if len(kinds) > 1:
            raise ValueError(f"names {' and '.join(kinds)}; a request names clients, samples or classes, not several")
        return {"clients": [], **raw} if kinds in (["samples"], ["classes"]) else raw

    @field_validator("clients", mode="before")
    @classmethod
    def _ids_are_text(cls, value: Any) -> Any:
        return [str(v) for v in value] if isinstance(value, list) else value

    @field_validator("clients")
    @classmethod
    def _not_empty(cls, value: int | list[str], info: ValidationInfo) -> int | list[str]:
        number = value if isinstance(value, int) else len(value)
        if number < 1 and not info.data.get("samples") and not info.data.get("classes"):
            raise ValueError("names no client; give ids, or a number of at least 1")
        return value


class Unlearning(_Section):
    """Section ``[unlearn]``: the unlearning method.

    Attributes:
        method: Name of the method, with a preset after a colon: fedosd, fupareto:paper, or package.module:Class.
        options: Options of the method.
    """

    method: Name = "fupareto"
    options: dict[str, Any] = {}


class Experiment(_Section):
    """Experiment file: a federation, its training and a request.

    Attributes:
        name: Name of the experiment, for reports.
        seed: Seed of all random choices.
        data: Data set.
        partition: Division of the samples among clients.
        backdoor: Trigger that makes forgetting measurable.
        task: Task of the data, by name or with options; None: that of the source, classes for a file.
        model: mlp, lenet5, cnn, nfresnet18, bag, gru, hf:NAME, or package.module:function.
        lora: Rank of the LoRA adapters of a model hf:NAME; 0 trains all of it.
        train: Training of the initial model.
        request: What is to be forgotten.
        unlearn: Unlearning method.
    """

    name: Name = "demo"
    seed: int = Field(0, ge=0, lt=documents.NUMBERS)
    data: Data = Data()
    partition: Partition = Partition()
    backdoor: Backdoor = Backdoor()
    task: Name | dict[Name, Any] | None = None
    model: Name = "mlp"
    lora: int = Field(0, ge=0, le=LARGEST_SETTING)
    train: Training = Training()
    request: Requested = Requested()
    unlearn: Unlearning = Unlearning()

    @property
    def task_code(self) -> tuple[str, ...]:
        """Names that the task is made of, which may be a user's code: its own, and that of its criterion."""
        if self.task is None or isinstance(self.task, str):
            return (self.task,) if self.task else ()
        return tuple(str(self.task[key]) for key in ("name", "criterion") if key in self.task)

    @model_validator(mode="after")
    def _retains_a_client(self) -> "Experiment":
        asked = self.request.clients
        count = asked if isinstance(asked, int) else len(set(asked))
        if count >= self.partition.clients:
            raise ValueError(
                f"request.clients forgets {count} of {self.partition.clients} clients; at least one must be retained"
            )
        return self


def load(path: Path) -> Experiment:
    """Read an experiment file; a relative path of data is relative to the experiment file.

    The name ``demo`` stands for the built-in experiment, unless there is a file of that name.
    """
    if str(path) == "demo" and not path.exists():
        return Experiment()
    raw = read(path, "experiment file")
    if is_bench(raw):
        raise UserError(f"{path} is a bench file, which compares methods; run it with: fupareto bench {path}")
    return validate(located(raw, path), str(path))


def located(raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return plain settings of the file ``path`` in which the data that they name by a path have an absolute one."""
    data = raw.get("data")
    source = data.get("source") if isinstance(data, dict) else None
    if not isinstance(source, str) or not (source.endswith(DATA_FILES) or "/" in source):
        return dict(raw)
    try:
        place = (path.parent / documents.expand(source)).resolve()
        if not source.endswith(DATA_FILES) and not place.is_dir():
            return dict(raw)
    except (OSError, RuntimeError, ValueError) as error:  # a name that is too long, or a loop of links
        raise UserError(f"{path}: cannot use data.source = {SHORT.repr(source)}: {error}") from error
    return merged(raw, {"data": {"source": str(place)}})


def read(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file as plain values; ``what`` names the kind of file in messages."""
    if not os.path.lexists(path):
        raise UserError(f"there is no {what} {path}")
    try:
        return documents.parse_toml(documents.read(path))
    except ValueError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


def validate(raw: dict[str, Any], where: str) -> Experiment:
    """Return the experiment of plain values; the error names every wrong key, and ``where`` they are."""
    try:
        return Experiment.model_validate(raw)
    except ValidationError as error:
        raise UserError(explain(error, where, Experiment)) from error


def is_bench(raw: dict[str, Any]) -> bool:
    """Return whether plain values are those of a bench file."""
    return not {"experiment", "settings", "methods"}.isdisjoint(raw)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of nested settings with changes applied."""
    result = deepcopy(dict(base))
    for key, value in changes.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return result
