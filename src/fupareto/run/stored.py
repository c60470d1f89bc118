"""Schemas of the documents of a run directory: the types of what commands read from them.

Keys that are not listed here are allowed: methods add their own to the record of a round, and later versions add more.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fupareto.documents import LONGEST_NAME, NUMBERS

Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Names = list[Name]
Count = Annotated[int, Field(ge=0, lt=NUMBERS)]
Number = float | None  # a measurement, if it could be made
Stage = Literal["initial", "unlearned", "recovered"]


class _Stored(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Config(_Stored):
    """Content of config.toml; the experiment and the method have schemas of their own."""

    format: int | None = None
    kind: Name = ""
    seed: int | None = None
    trained: str | None = None
    experiment: dict[str, Any] = {}
    method: dict[str, Any] = {}
    training: dict[str, Any] | None = None
    versions: dict[Name, Name] = {}


class Asked(_Stored):
    """Content of request.json."""

    clients: Names
    samples: dict[Name, list[int]] = {}
    classes: list[int] = []
    left: Names = []
    received: Name | None = None


class Record(_Stored):
    """A line of rounds.jsonl."""

    round: Annotated[int, Field(ge=1, lt=NUMBERS)]
    stage: Stage
    phase: Name
    lr: Number = None
    step: Number = None
    tried: list[Number] | int | None = None
    losses: dict[Name, Number] | None = None
    cosines: dict[Name, Number] | None = None
    missing: dict[Name, str] | None = None
    sampled: Names | None = None
    first_answers: Names | None = None
    seconds: float = Field(0.0, ge=0)
    bytes_up: Count = 0
    bytes_down: Count = 0
    passes: Annotated[float, Field(ge=0)] | None = None
    stored: Count = 0
    asr: Number = None
    r_acc: Number = None
    r_acc_min: Number = None
    forget_acc: Number = None
    distance: Number = None


class _Client(_Stored):
    side: Literal["forget", "retained"] | None = None
    asr: Number = None
    accuracy: Number = None
    samples: Count | None = None


class _Measured(_Stored):
    asr: Number = None
    asr_max: Number = None
    forget_acc: Number = None
    r_acc: Number = None
    r_acc_std: Number = None
    r_acc_min: Number = None
    mia_auc: Number = None
    distance: Number = None
    clients: dict[Name, _Client] = {}


class _Cost(_Stored):
    rounds: Count = 0
    seconds: float = Field(0.0, ge=0)
    bytes_up: Count = 0
    bytes_down: Count = 0
    passes: Annotated[float, Field(ge=0)] | None = None


class Summary(_Stored):
    """Content of summary.json."""

    method: Name
    dataset: str | None
    forget: Names
    stages: dict[Name, _Measured]
    cost: _Cost
    phases: dict[Name, Count]
    verdict: str
    name: Name | None = None
    model: Name | None = None
    seed: int | None = None
    clients: Names = []
    part: str = ""
    status: Literal["complete", "unverified"] = "complete"
    final: Stage = "initial"
    missing: dict[Name, str] = {}
    checks: dict[Name, Count] | None = None
    versions: dict[Name, Name] = {}


class _Check(_Stored):
    claim: str
    result: Name
    text: str


class _Verdict(_Stored):
    checks: list[_Check] = []


class _Attacked(_Stored):
    clients: dict[Name, dict[str, Any]] = {}
    mean: dict[Name, dict[str, Any]] = {}


class Audit(_Stored):
    """Content of audit.json."""

    membership: dict[Name, _Attacked]
    exclusivity: dict[str, Any] | None
    verdict: _Verdict


def check(raw: dict[str, Any], shape: type[BaseModel]) -> dict[str, Any]:
    """Return the content of a document unchanged; ValueError if it does not have the shape."""
    try:
        shape.model_validate(raw)
    except ValidationError as error:
        raise ValueError(_explain(error.errors())) from error
    return raw


def _explain(mistakes: Any) -> str:
    """Return what is wrong, in words that name the key; the keys that are missing first."""
    absent = [str(m["loc"][-1]) for m in mistakes if m["type"] == "missing"]
    if absent:
        return f"missing {', '.join(absent)}"
    first: Mapping[str, Any] = mistakes[0]
    return f"{'.'.join(map(str, first['loc']))[:120]}: {first['msg']}"
