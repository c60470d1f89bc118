"""Nodes of a Flower Grid by client id; a client that reconnects has another node and the same id."""

import re
import time
from collections.abc import Iterable, Mapping

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from fupareto.errors import UserError
from fupareto.flower.records import read_here

WHO = "query.client"  # message type that asks a node for its client id
POLL = (0.02, 1.0)  # limits of the seconds between polls, a tenth of the time waited; Flower's own loop polls every 3
CONNECTION = ("httpx", "httpcore", "grpc")  # packages whose errors are those of a connection, not of a reply
MEETING = 60.0  # seconds that a node has to send its client id, and after which it is asked again


class Nodes:
    """Connected clients of a Grid, and the exchange of messages with them.

    Args:
        grid: The grid.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.of: dict[str, int] = {}  # client -> node
        self.unresponsive: set[str] = set()  # clients whose node did not answer the last message
        self._asked: dict[int, float] = {}  # node without a known client -> time at which it was asked for its id

    def gather(self, clients: int, patience: float) -> None:
        """Wait until ``clients`` clients are connected, for at most ``patience`` seconds."""
        end = time.monotonic() + patience
        while True:
            self._introduce(set(self.grid.get_node_ids()))
            if len(self.of) >= clients:
                return
            if time.monotonic() >= end:
                connected = ", ".join(self.names) or "none"
                raise UserError(
                    f"{len(self.of)} of {clients} clients are connected after {patience:g} seconds ({connected}); "
                    "start the other nodes, or set clients to a smaller number"
                )
            time.sleep(1.0)

    def find(self, wanted: Iterable[str], patience: float) -> None:
        """Update the connected clients, and look for new nodes of those in ``wanted`` that are disconnected.

        A run in which no client is connected for ``patience`` seconds is stopped.
        """
        end = time.monotonic() + patience
        while True:
            here = set(self.grid.get_node_ids())
            for client in [i for i, node in self.of.items() if node not in here]:
                del self.of[client]
            if any(i not in self.of or i in self.unresponsive for i in wanted):
                self._introduce(here, returning=True)
            if self.of:
                return
            if time.monotonic() >= end:
                raise UserError(
                    f"no client has been connected for {patience:g} seconds, so the run stops; completed rounds are on "
                    "disk. Start the nodes, and run again with resume=true"
                )
            time.sleep(1.0)

    def send(self, messages: Mapping[str, Message], timeout: float) -> dict[str, Message]:
        """Send messages and return the replies that arrive within ``timeout`` seconds, by client."""
        if not messages:
            return {}
        pushed = list(self.grid.push_messages(list(messages.values())))
        waiting = {number: i for number, i in zip(pushed, messages, strict=False) if number}
        replies: dict[str, Message] = {}
        start = time.monotonic()
        while waiting:
            for number in list(waiting):
                if (reply := self._pull(number, messages[waiting[number]])) is not None:
                    replies[waiting.pop(number)] = reply
            waited = time.monotonic() - start
            if not waiting or waited >= timeout:
                break
            time.sleep(min(max(POLL[0], 0.1 * waited), POLL[1], timeout - waited))
        return replies

    def _pull(self, number: str, message: Message) -> Message | None:
        """Return the reply to a message, if it has arrived; an error where Flower cannot put it together.

        Replies are fetched one by one: Flower fetches a reply once, and a malformed one would take others with it.
        """
        try:
            return next(iter(self.grid.pull_messages([number])), None)
        except Exception as error:
            if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in CONNECTION:
                raise
            return Message(Error(0, f"the reply cannot be read: {type(error).__name__}: {error}"), reply_to=message)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the ids of the connected clients in natural order: 2 before 10."""
        return tuple(sorted(self.of, key=_natural))

    def _introduce(self, here: set[int], returning: bool = False) -> None:
        """Ask unknown nodes for their client ids.

        Two nodes with the same client id are an error at the start. Later (``returning``), a node replaces the node of
        a client that is unresponsive; otherwise it is ignored.
        """
        now = time.monotonic()
        known = set(self.of.values())
        new = [n for n in sorted(here - known) if n not in self._asked or now - self._asked[n] >= MEETING]
        replies = self.send({str(n): Message(RecordDict(), n, WHO, ttl=MEETING + 60.0) for n in new}, MEETING)
        for node in new:
            self._asked[node] = time.monotonic()
            reply = replies.get(str(node))
            ids, refused = read_here(reply.content) if reply is not None and reply.has_content() else ([], "")
            if refused:
                raise UserError(f"node {node} reports an error: {refused}")
            if not ids:
                continue
            client = ids[0]
            if client not in self.of or (returning and client in self.unresponsive):
                self.of[client] = node
                self.unresponsive.discard(client)
                del self._asked[node]
            elif not returning:
                raise UserError(
                    f"two nodes have the same client-id '{client}'; set a different client-id for every SuperNode with "
                    "--node-config"
                )


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Return a sort key that compares digits as numbers."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]
