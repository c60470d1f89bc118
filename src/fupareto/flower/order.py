"""The run config of a Flower run, ``-c 'forget="3,7" method="fupareto"'``, read and checked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fupareto import parse
from fupareto.config import explain
from fupareto.errors import UserError
from fupareto.federation import Request
from fupareto.methods import Method
from fupareto.methods.registry import find


class Order(BaseModel):
    """One run; keys that an app has for itself are left alone."""

    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name.replace("_", "-"), allow_inf_nan=False)

    forget: str = ""  # clients, by their names: "3,7"
    samples: str = ""  # or a JSON file on the server, client to row numbers
    classes: str = ""  # or classes: "4,7"
    method: str = "fupareto"  # fedavg trains a model; everything else forgets
    options: str = ""  # of the method: "rounds=50 lr=0.1"
    model: str = ""  # where to start from: a .safetensors file, or a run directory
    audit: bool = True  # attack the models: the outputs and labels of those who leave are sent to the server for it
    reference: str = (
        ""  # run directories of models retrained without what is to be forgotten, for the audit: "a" or "a,b"
    )
    retrain: int = Field(0, ge=0, le=2)  # or retrain so many models, to compare with
    dormancy: int | None = Field(None, ge=0)  # rounds of further training in the audit; 40 where the run had as many
    out: str = "runs/flower"  # run directory to write
    resume: bool = False
    clients: int = Field(2, ge=2)  # how many must be there before the run begins
    timeout: float = Field(600.0, gt=0)  # seconds an answer may take
    patience: float = Field(300.0, ge=0)  # seconds that are waited for clients when too few, or none, are there
    measure_every: int = Field(1, ge=0)  # rounds between measurements; 0: only at the end of a stage
    record: str = ""  # methods whose history training keeps: "federaser,fupga,fedau"
    keep: int = Field(100, gt=0)  # rounds that FedEraser will replay
    seed: int = Field(0, ge=0)

    @field_validator("forget", "classes", mode="before")
    @classmethod
    def _a_number_is_a_name(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @classmethod
    def read(cls, run_config: Mapping[str, Any]) -> "Order":
        """Read Flower's run config, naming every wrong key at once."""
        try:
            order = cls.model_validate(dict(run_config))
        except ValidationError as error:
            raise UserError(explain(error, "the run config", cls)) from error
        order.method_  # noqa: B018 - a mistake in there should not wait for the clients
        if order.trains == bool(order.request):
            raise UserError(
                'method "fedavg" trains a model and forgets nobody; leave forget, samples and classes empty'
                if order.trains
                else 'the run config does not say what is to be forgotten: forget="3,7" for clients 3 and 7, '
                'samples="FILE" or classes="4"; or train a model with method="fedavg"'
            )
        if not order.trains and not order.model:
            raise UserError(
                'the run config does not say which model is to forget: model="FILE.safetensors", or the directory of '
                "a run"
            )
        return order

    @property
    def trains(self) -> bool:
        """Return whether a model is trained, and nothing forgotten."""
        return self.method == "fedavg"

    @property
    def method_(self) -> Method:
        """Return the method with its options."""
        return find(self.method, parse.options(self.options.split(), "options"))

    @property
    def request(self) -> Request | None:
        """Return what is to be forgotten."""
        return parse.request(self.forget or None, Path(self.samples) if self.samples else None, self.classes or None)
