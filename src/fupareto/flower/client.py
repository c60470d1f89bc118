"""Flower client: a ClientApp that answers the questions of an unlearning server, or handlers for an existing one.

A deployment may start a new process for every message, so this module keeps no state. What must persist between
messages, the model of the round from its gradient to its line search, is in ``context.state``, which stays on the node.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from fupareto.federation.questions import QUESTIONS, Answer, Attested, Failure, Gradient, PseudoGradient
from fupareto.federation.request import Request, Splits
from fupareto.federation.samples import check_fit, checked, splits_of
from fupareto.flower.arrays import array_of, tensor_of
from fupareto.flower.records import (
    Lacking,
    answer_records,
    here_records,
    read_envelope,
    read_question,
    read_request,
)
from fupareto.models import check_outputs

Model = Callable[[], nn.Module]
Data = Callable[[Context], Any]  # the node's train and test set, each (inputs, labels) or a torch Dataset
KEPT = "fupareto.kept"
KEY = "FUPARETO_CLIENT_KEY"  # environment variable of the file of the client's private key


def client_app(model: Model, data: Data) -> ClientApp:
    """Return a ClientApp that answers the questions of an unlearning server.

    Args:
        model: Function that returns the model, an nn.Module.
        data: Function of the Flower context that returns the train set and the test set of the node, each a pair
            (inputs, labels) or a torch Dataset of (input, label) pairs.

    Returns:
        The app.
    """
    return add_unlearning(ClientApp(), model, data)


def add_unlearning(app: ClientApp, model: Model, data: Data) -> ClientApp:
    """Add the handlers of unlearning to an existing ClientApp.

    Its own ``train``, ``evaluate`` and ``query`` handlers are unchanged.

    Args:
        app: The app.
        model: Function that returns the model, an nn.Module.
        data: Function of the Flower context that returns the train set and the test set of the node, each a pair
            (inputs, labels) or a torch Dataset of (input, label) pairs.

    Returns:
        The same app.
    """

    @app.query("client")
    def here(message: Message, context: Context) -> Message:
        return Message(_here(read_request(message.content), context, data), reply_to=message)

    def handle(message: Message, context: Context) -> Message:
        reply = _answered(message.content, context, model, data)
        return Message(answer_records(reply, read_envelope(message.content)), reply_to=message)

    app.train("unlearn")(handle)
    app.query("loss")(handle)
    app.query("outputs")(handle)
    app.evaluate("unlearn")(handle)
    return app


def client_id(context: Context) -> str:
    """Return the client id of a node: its client-id, its partition-id in Flower's simulation, or its node id."""
    config = context.node_config
    return str(config.get("client-id", config.get("partition-id", context.node_id)))


def _here(request: Request | None, context: Context, data: Data) -> RecordDict:
    """Return the client ids of this node; data are loaded only when a request divides them."""
    client = client_id(context)
    if request is None:
        return here_records([client])
    try:
        return here_records(list(_held(client, request, data(context))))
    except Exception as error:  # a user's function may raise anything; the reason goes to the server
        return here_records([], refused=str(error))


def _answered(content: RecordDict, context: Context, model: Model, data: Data) -> Answer | Failure | Lacking:
    """Answer a question; an exception in the user's functions becomes a Failure with its message."""
    try:
        question = read_question(QUESTIONS, content, _kept(context))
        if isinstance(question, Lacking):
            return question
        if isinstance(question, Gradient | PseudoGradient):  # the line search of this round needs the same model
            context.state[KEPT] = ArrayRecord({"w": array_of(question.w)})
        asked = read_envelope(content).client
        module = model().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        splits = _held(client_id(context), read_request(content), data(context))[asked]
        shape = tuple(splits["train"][0].shape[1:])
        check_fit(asked, splits, shape, check_outputs(module, shape))
        answer = question.answer(module, splits, asked)
        return _signed(answer, context) if isinstance(answer, Attested) else answer
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}")


def _signed(answer: Attested, context: Context) -> Attested:
    """Sign what the client measured, if the node has a key: client-key in its node config, or FUPARETO_CLIENT_KEY."""
    path = str(context.node_config.get("client-key", "")) or os.environ.get(KEY, "")
    if not path:
        return answer
    from fupareto.evidence import signer, signing

    return replace(answer, envelope=json.dumps(signing.envelope(json.loads(answer.statement), signer(Path(path)))))


def _held(client: str, request: Request | None, held: Any) -> dict[str, Splits]:
    """Return the data of the node by client id: of its client, and of the virtual client if a request divides them."""
    clients = {client: checked(client, splits_of(client, held))}
    return request.divide(clients) if request else clients


def _kept(context: Context) -> Tensor | None:
    """Return the model that the node keeps from the last gradient; None without one."""
    held = context.state.array_records.get(KEPT)
    return None if held is None else tensor_of(held["w"])
