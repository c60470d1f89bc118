"""A Flower Grid in this process: messages travel as the bytes Flower makes of them, to the app that nodes run.

Nodes can be stopped, started again as others, and made to misbehave.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from fupareto.federation.request import Splits
from fupareto.flower import client_app
from fupareto.flower.client import client_id

TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
Fault = Callable[[Message, Message], Message | None]  # of a message and its reply: what arrives instead, or nothing


@dataclass
class Node:
    """One node: its app, and what Flower keeps for it between messages."""

    app: ClientApp
    context: Context
    fault: Fault | None = None


@dataclass
class Sent:
    """What passed: the type of a message, to whom, and its bytes in both directions."""

    kind: str
    client: str
    down: int
    up: int = 0


@dataclass
class LocalGrid(Grid):
    """Answers at once, unless a node is silent."""

    nodes: dict[int, Node] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    keys: dict[int, bytes] = field(default_factory=dict)  # public keys of nodes, as the SuperLink has checked them
    listed: set[int] = field(default_factory=set)  # dead nodes that the grid has not noticed yet
    _replies: dict[str, Message] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(100))

    def start(self, app: ClientApp, config: Mapping[str, Any], fault: Fault | None = None) -> int:
        """Start a node and return its number."""
        number = next(self._numbers)
        self.nodes[number] = Node(app, Context(1, number, dict(config), RecordDict(), {}), fault)
        return number

    def stop(self, client: str, noticed: bool = True) -> None:
        """Kill a client's node; the grid may go on listing it for a while."""
        number = self.number(client)
        del self.nodes[number]
        if not noticed:
            self.listed.add(number)

    def number(self, client: str) -> int:
        return next(n for n, node in self.nodes.items() if client_id(node.context) == client)

    def of(self, client: str) -> Node:
        return self.nodes[self.number(client)]

    def get_node_ids(self) -> Iterable[int]:
        return [*self.nodes, *self.listed]

    def get_nodes(self) -> Any:
        return [SimpleNamespace(node_id=n, public_key=self.keys.get(n, b"")) for n in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        number = f"m{len(self.sent)}"
        message, size = travel(message, number)
        node = self.nodes.get(message.metadata.dst_node_id)
        name = client_id(node.context) if node else "nobody"
        self.sent.append(Sent(message.metadata.message_type, name, size))
        if node is not None:
            reply: Message | None = node.app(message, node.context)
            if reply is not None and node.fault is not None:
                reply = node.fault(message, reply)
            if reply is not None:
                self._replies[number], self.sent[-1].up = travel(reply, f"{number}r")
        return number

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def kinds(self, start: int = 0) -> list[str]:
        return [s.kind for s in self.sent[start:]]

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        raise NotImplementedError


def travel(message: Message, number: str) -> tuple[Message, int]:
    """Take a message apart into the objects that Flower sends, put it together again, and return its size too."""
    contents = {i: thing.deflate() for i, thing in get_all_nested_objects(message).items()}
    size = sum(map(len, contents.values()))
    arrived = cast(Message, inflate_object_from_contents(message.object_id, contents))
    arrived.metadata.__dict__["_message_id"] = number
    return arrived, size


def grid_of(model: Callable[[], nn.Module], clients: Mapping[str, Splits]) -> LocalGrid:
    """Return a grid with one node per client, each with the data of its own."""
    grid = LocalGrid()
    for client in clients:
        grid.start(app_of(model, clients), {"client-id": client})
    return grid


def app_of(model: Callable[[], nn.Module], clients: Mapping[str, Splits]) -> ClientApp:
    return client_app(model, lambda context: clients[client_id(context)])
