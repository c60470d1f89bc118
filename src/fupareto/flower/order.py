"""Run config of a Flower run, such as ``-c 'forget="3,7" method="fupareto"'``: reading and validation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fupareto import parse
from fupareto.errors import UserError
from fupareto.federation import Request
from fupareto.federation.request import VIRTUAL
from fupareto.methods import FedAvg, Method
from fupareto.methods.registry import find
from fupareto.mistakes import explain


class Order(BaseModel):
    """Run config of one run; keys that are not listed here belong to the app and are ignored.

    Attributes:
        forget: Ids of the clients to forget: "3,7".
        samples: Instead, a JSON file on the server that maps client ids to row numbers.
        classes: Instead, classes to forget: "4,7".
        method: Name of the method; fedavg trains a model, every other method unlearns.
        options: Options of the method: "rounds=50 lr=0.1".
        model: Model to start from: a .safetensors file, or a run directory.
        audit: Whether the models are attacked at the end, for which forget clients send signals of their samples (loss,
            margin, entropy, sorted outputs) to the server; labels and inputs stay on the nodes.
        reference: Run directory of a retrained model, for the audit.
        out: Run directory to write.
        resume: Continue the run in ``out``.
        clients: Number of clients that must be connected before the run starts.
        members: Membership file, see membership.py; without it every node says itself which client it is.
        wait_for: Share of the clients that a question waits for; the clients to be forgotten are always waited for.
        timeout: Seconds that an answer may take.
        patience: Seconds to wait for clients at the start, and when no client is connected.
        measure_every: Rounds between measurements of the model; 0 measures only the last model of a stage.
        record: Unlearning methods whose training history is recorded: "federaser,fupga,fedau".
        keep: Number of rounds that are recorded for FedEraser.
        seed: Seed of all random choices.
        log: Trackers to which the server logs the rounds: "tensorboard,mlflow,wandb".
        certify: Whether a certificate is written at the end, and forget clients are asked for their signed receipts.
        key: File of the private key that signs the certificate.
        previous: Certificate of the request before it.
    """

    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name.replace("_", "-"), allow_inf_nan=False)

    forget: str = ""  # clients, by their names: "3,7"
    samples: str = ""  # or a JSON file on the server, client to row numbers
    classes: str = ""  # or classes: "4,7"
    method: str = "fupareto"  # fedavg trains a model; everything else forgets
    options: str = ""  # of the method: "rounds=50 lr=0.1"
    model: str = ""  # where to start from: a .safetensors file, or a run directory
    audit: bool = True  # attack the models, for which the forget clients send signals per sample, and no labels
    reference: str = (
        ""  # run directories of models retrained without what is to be forgotten, for the audit: "a" or "a,b"
    )
    retrain: int = Field(0, ge=0, le=2)  # or retrain so many models, to compare with
    dormancy: int | None = Field(None, ge=0)  # rounds of further training in the audit; 40 where the run had as many
    out: str = "runs/flower"  # run directory to write
    resume: bool = False
    clients: int = Field(2, ge=2)
    members: str = ""  # membership file on the server: which client is which key
    wait_for: float = Field(1.0, gt=0, le=1)  # share of the clients that a question waits for
    timeout: float = Field(600.0, gt=0)
    patience: float = Field(300.0, ge=0)
    measure_every: int = Field(1, ge=0)
    record: str = ""
    keep: int = Field(100, gt=0)
    seed: int = Field(0, ge=0)
    log: str = ""
    certify: bool = False
    key: str = ""
    previous: str = ""

    @field_validator("forget", "classes", mode="before")
    @classmethod
    def _number_as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("dormancy", mode="before")
    @classmethod
    def _no_text(cls, value: Any) -> Any:
        return None if value == "" else value  # a run config cannot hold None

    @classmethod
    def read(cls, run_config: Mapping[str, Any]) -> "Order":
        """Return the order of a Flower run config; the error names every wrong key."""
        try:
            order = cls.model_validate(dict(run_config))
        except ValidationError as error:
            raise UserError(explain(error, "the run config", cls)) from error
        order.chosen()  # report mistakes in method and options before waiting for clients
        if order.trains == bool(order.request):
            raise UserError(
                'method "fedavg" trains a model and forgets nothing; leave forget, samples and classes empty'
                if order.trains
                else 'the run config does not say what is to be forgotten: set forget="3,7" for clients 3 and 7, '
                'samples="FILE" or classes="4"; or train a model with method="fedavg"'
            )
        if not order.trains and not order.model:
            raise UserError(
                'the run config does not say which model is to forget: set model="FILE.safetensors", or the directory '
                "of a run"
            )
        return order

    @property
    def trains(self) -> bool:
        """Return whether the run trains a model, without a request."""
        return self.method == "fedavg"

    def chosen(self, training: FedAvg | None = None) -> Method:
        """Return the method with its options; what they leave open is taken from the training, if known."""
        return find(self.method, parse.nested(self.options.split(), "options"), training)

    @property
    def essential(self) -> tuple[str, ...]:
        """Return the clients without which a request cannot be answered: those to be forgotten, whole or in part."""
        asked = self.request
        named = (*asked.clients, *asked.samples) if asked else ()
        return (*named, *(f"{i}{VIRTUAL}" for i in named))

    @property
    def request(self) -> Request | None:
        """Return what is to be forgotten; None for a training."""
        return parse.request(self.forget or None, Path(self.samples) if self.samples else None, self.classes or None)
