import pytest

from fupareto.errors import UserError
from fupareto.federation import Request

IDS = ("a", "b", "c", "d")


def test_sides_keep_the_federations_order() -> None:
    assert Request(("d", "b")).sides(IDS) == (("b", "d"), ("a", "c"))


def test_naming_a_client_twice_forgets_it_once() -> None:
    assert Request(("b", "b")).sides(IDS) == (("b",), ("a", "c", "d"))


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        (("b", "x", "y"), "no client 'x', 'y' in the federation; it has a, b, c, d"),
        ((), "names nobody to forget; name clients among a, b, c, d"),
        (("d", "c", "b", "a"), "forgets every client"),
    ],
)
def test_requests_that_cannot_be_met(clients: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Request(clients).sides(IDS)
