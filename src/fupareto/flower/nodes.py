"""Nodes of a Flower Grid by client id; a client that reconnects has another node and the same id."""

import logging
import math
import re
import time
from collections.abc import Iterable, Mapping

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from fupareto.errors import UserError
from fupareto.federation.questions.schema import clipped
from fupareto.flower import compat
from fupareto.flower.membership import Membership
from fupareto.flower.punctuality import Punctuality
from fupareto.flower.records import kind_of, read_here

log = logging.getLogger("flwr")

WHO = "query.client"  # message type that asks a node for its client id
POLL = (0.02, 1.0)  # limits of the seconds between polls, a tenth of the time waited; Flower's own loop polls every 3
CONNECTION = ("httpx", "httpcore", "grpc")  # packages whose errors are those of a connection, not of a reply
MEETING = 60.0  # seconds that a node has to send its client id, and after which it is asked again


class Nodes:
    """Connected clients of a Grid, and the exchange of messages with them.

    Args:
        grid: The grid.
        members: The clients by their keys; None if every node says itself which client it is.
    """

    def __init__(self, grid: Grid, members: Membership | None = None) -> None:
        self.grid, self.members = grid, members
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

    def send(
        self, messages: Mapping[str, Message], timeout: float, times: Punctuality | None = None
    ) -> dict[str, Message]:
        """Send messages and return the replies that arrive in time, by client.

        Args:
            messages: One message by client.
            timeout: Seconds to wait.
            times: Told when clients answer, and asked whether to go on without the slowest.
        """
        if not messages:
            return {}
        pushed = list(self.grid.push_messages(list(messages.values())))
        waiting = {number: i for number, i in zip(pushed, messages, strict=False) if number}
        replies: dict[str, Message] = {}
        start, last = time.monotonic(), math.inf
        while waiting:
            for number in list(waiting):
                if (reply := self._pull(number, messages[waiting[number]])) is not None:
                    i = waiting.pop(number)
                    replies[i] = reply
                    if times is not None:
                        times.heard(i, kind_of(messages[i]), time.monotonic() - start)
                        last = time.monotonic() - start if len(replies) == times.share(messages) else last
            waited = time.monotonic() - start
            if not waiting or waited >= timeout:
                break
            if times is not None and times.enough(messages, waiting.values(), waited, last):
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
        """Ask unknown nodes for their client ids; with a membership file, their keys must be those of the clients.

        Without one, two nodes with the same client id are an error at the start. Later (``returning``), a node replaces
        the node of a client that is unresponsive; otherwise it is ignored.
        """
        now = time.monotonic()
        known = set(self.of.values())
        new = [n for n in sorted(here - known) if n not in self._asked or now - self._asked[n] >= MEETING]
        keys = compat.public_keys(self.grid) if new and self.members else {}
        replies = self.send({str(n): Message(RecordDict(), n, WHO, ttl=MEETING + 60.0) for n in new}, MEETING)
        for node in new:
            self._asked[node] = time.monotonic()
            client = self._name(node, replies.get(str(node)), keys.get(node, b""))
            if client is None:
                continue
            if client not in self.of or self.members or (returning and client in self.unresponsive):
                self.of[client] = node
                self.unresponsive.discard(client)
                del self._asked[node]
            elif not returning:
                raise UserError(
                    f"two nodes have the same client-id '{client}'; set a different client-id for every SuperNode with "
                    "--node-config, and name a membership file so that nobody can take the name of another"
                )

    def _name(self, node: int, reply: Message | None, key: bytes) -> str | None:
        """Return the client of a node, or None if it takes no part: it says none, or has not the key of one."""
        ids: list[str] | None = None
        refused = ""
        if reply is not None and reply.has_content():
            try:
                ids, refused = read_here(reply.content)
            except Exception as error:  # whatever a node sends
                refused = clipped(str(error))
        if refused or not ids:
            log.warning("fupareto: node %d takes no part: %s", node, refused or "it does not say which client it is")
            return None
        if self.members is None:
            return ids[0]
        if (owner := self.members.of(key)) != ids[0]:
            whose = "a key that is not in the membership file" if owner is None else f"the key of client '{owner}'"
            log.warning("fupareto: node %d takes no part: it says that it is '%s', with %s", node, ids[0], whose)
            return None
        return owner


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Return a sort key that compares digits as numbers."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]
