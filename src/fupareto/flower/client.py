"""Flower client: a ClientApp that answers the questions of an unlearning server, or handlers for an existing one.

A deployment may start a new process for every message, so this module keeps no state. What must persist between
messages, the model of the round from its gradient to its line search, is in ``context.state``, which stays on the node.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from fupareto.errors import UserError
from fupareto.federation.questions import QUESTIONS, Attested, Evaluate, Failure, Gradient, PseudoGradient
from fupareto.federation.reading import splits_of
from fupareto.federation.request import Request, Splits
from fupareto.federation.samples import check_dtype, checked, fitted
from fupareto.flower.arrays import array_of, tensor_of
from fupareto.flower.records import (
    Lacking,
    answer_records,
    carried,
    carry,
    here_records,
    read_envelope,
    read_question,
    read_request,
    read_task,
)
from fupareto.tasks import TASKS, Task, task_of
from fupareto.tasks.base import CRITERION
from fupareto.tasks.samples import Collate

Model = Callable[[], nn.Module]
Data = Callable[[Context], Any]  # the node's train and test set, in any form that fupareto.simulate takes
TaskLike = Task | type[Task] | str | Mapping[str, Any] | None
KEPT = "fupareto.kept"
KEY = "FUPARETO_CLIENT_KEY"  # environment variable of the file of the client's private key


@dataclass(frozen=True)
class _Node:
    """What a node was started with: its model, its data, and the task that it agrees to."""

    model: Model
    data: Data
    task: Task | None
    collate: Collate | None

    def agreed(self, sent: Mapping[str, Any] | None) -> Task:
        """Return the task of a message: this node's, with the options that the server states.

        A user's task or criterion is code, so the node itself has to name it; a server cannot make a node import it.
        """
        if sent is None:
            return self.task or task_of(None)
        if self.task is not None:
            return self.task.agreed(sent, "the server's", "this node's")
        code = [str(sent[key]) for key in ("name", CRITERION) if key in sent and sent[key] not in TASKS]
        if code:
            raise UserError(
                f"the server's task is {' with '.join(code)}; pass it to client_app(model, data, task=…) on this node"
            )
        return task_of(sent)


def client_app(model: Model, data: Data, task: TaskLike = None, collate: Collate | None = None) -> ClientApp:
    """Return a ClientApp that answers the questions of an unlearning server.

    Args:
        model: Function that returns the model, an nn.Module.
        data: Function of the Flower context that returns the train set and the test set of the node, in any form that
            :func:`fupareto.simulate` takes.
        task: What samples, outputs and losses are, as in :func:`fupareto.simulate`; None takes the server's, if that is
            a built-in one.
        collate: Function that makes a batch of a list of samples, where these differ in length.

    Returns:
        The app.
    """
    return add_unlearning(ClientApp(), model, data, task, collate)


def add_unlearning(
    app: ClientApp, model: Model, data: Data, task: TaskLike = None, collate: Collate | None = None
) -> ClientApp:
    """Add the handlers of unlearning to an existing ClientApp.

    Its own ``train``, ``evaluate`` and ``query`` handlers are unchanged.

    Args:
        app: The app.
        model: Function that returns the model, an nn.Module.
        data: Function of the Flower context that returns the train set and the test set of the node, in any form that
            :func:`fupareto.simulate` takes.
        task: What samples, outputs and losses are, as in :func:`fupareto.simulate`; None takes the server's, if that is
            a built-in one.
        collate: Function that makes a batch of a list of samples, where these differ in length.

    Returns:
        The same app.
    """

    node = _Node(model, data, None if task is None else task_of(task), collate)

    @app.query("client")
    def here(message: Message, context: Context) -> Message:
        return Message(_here(message.content, context, node), reply_to=message)

    def handle(message: Message, context: Context) -> Message:
        return Message(_reply(message.content, context, node), reply_to=message)

    app.train("unlearn")(handle)
    app.query("loss")(handle)
    app.query("signals")(handle)
    app.evaluate("unlearn")(handle)
    return app


def client_id(context: Context) -> str:
    """Return the client id of a node: its client-id, its partition-id in Flower's simulation, or its node id."""
    config = context.node_config
    return str(config.get("client-id", config.get("partition-id", context.node_id)))


def _here(content: RecordDict, context: Context, node: _Node) -> RecordDict:
    """Return the client ids of this node; data are loaded only when a request divides them."""
    client, request = client_id(context), read_request(content)
    if request is None:
        return here_records([client])
    try:
        return here_records(list(_held(context, request, node, node.agreed(read_task(content)))))
    except Exception as error:  # a user's function may raise anything; the reason goes to the server
        return here_records([], refused=str(error))


def _reply(content: RecordDict, context: Context, node: _Node) -> RecordDict:
    """Answer a question, and measure its model if the message asks for it as well.

    An exception in the user's functions becomes a Failure with its message; one in the measurement leaves it out.
    """
    envelope = read_envelope(content)
    try:
        question = read_question(QUESTIONS, content, _kept(context))
        if isinstance(question, Lacking):
            return answer_records(question, envelope)
        if isinstance(question, Gradient | PseudoGradient):  # the line search of this round needs the same model
            context.state[KEPT] = ArrayRecord({"w": array_of(question.w)})
        module = _module(node)
        task = node.agreed(read_task(content))
        held = _held(context, read_request(content), node, task, check_dtype(module))[envelope.client]
        splits = fitted(module, {envelope.client: held})[envelope.client]
        answer = question.answer(module, splits, envelope.client)
        answer = _signed(answer, context) if isinstance(answer, Attested) else answer
    except Exception as error:
        return answer_records(Failure(f"{type(error).__name__}: {error}"), envelope)
    reply = answer_records(answer, envelope)
    if names := carried(content, "measure").get("splits"):
        with contextlib.suppress(Exception):  # without it the server asks again, and is told the reason
            measured = Evaluate(question.w, tuple(names)).answer(_module(node), splits, envelope.client)  # type: ignore[attr-defined]
            carry(reply, "measured", {"counts": measured.counts})
    return reply


def _module(node: _Node) -> nn.Module:
    """Return a new module of the user's model."""
    module: nn.Module = node.model().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


def _signed(answer: Attested, context: Context) -> Attested:
    """Sign what the client measured, if the node has a key: client-key in its node config, or FUPARETO_CLIENT_KEY."""
    path = str(context.node_config.get("client-key", "")) or os.environ.get(KEY, "")
    if not path:
        return answer
    from fupareto.evidence import signer, signing

    signed = signing.envelope(json.loads(answer.statement), signer(Path(path)))
    return dataclasses.replace(answer, envelope=json.dumps(signed))


def _held(
    context: Context, request: Request | None, node: _Node, task: Task, dtype: torch.dtype = torch.float32
) -> dict[str, Splits]:
    """Return the data of the node by client id: of its client, and of the virtual client if a request divides them."""
    client = client_id(context)
    splits = splits_of(client, node.data(context), node.collate)
    clients: dict[str, Splits] = {client: checked(client, splits, None, task, dtype)}
    return request.divide(clients) if request else clients


def _kept(context: Context) -> Tensor | None:
    """Return the model that the node keeps from the last gradient; None without one."""
    held = context.state.array_records.get(KEPT)
    return None if held is None else tensor_of(held["w"])
