from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fupareto.data.partition import partition, split
from fupareto.errors import UserError
from fupareto.randomness import stream

Labels = NDArray[np.int64]


def pool(classes: int, each: int, seed: int = 0) -> Labels:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), each))


def assert_covers(parts: list[NDArray[np.int64]], size: int) -> None:
    together = np.concatenate(parts)
    assert len(together) == size
    assert np.array_equal(np.sort(together), np.arange(size))


@given(
    classes=st.integers(2, 12),
    each=st.integers(20, 60),
    clients=st.integers(1, 12),
    kind=st.sampled_from(["dirichlet", "pat", "iid"]),
    alpha=st.sampled_from([0.3, 1.0, 100.0]),
    balance=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_parts_are_disjoint_cover_the_pool_and_depend_on_the_seed_alone(
    classes: int, each: int, clients: int, kind: str, alpha: float, balance: bool, seed: int
) -> None:
    labels = pool(classes, each, seed)

    def draw(number: int) -> list[NDArray[np.int64]]:
        return partition(
            labels,
            clients,
            kind,
            stream(number, "partition"),
            alpha=alpha,
            classes_per_client=classes,
            balance=balance,
        )

    try:
        parts = draw(seed)
    except UserError as error:
        assert "fewer clients" in str(error)  # noqa: PT017
        return
    assert len(parts) == clients
    assert_covers(parts, len(labels))
    assert all(np.array_equal(a, b) for a, b in zip(parts, draw(seed), strict=True))
    if kind == "dirichlet":
        assert min(map(len, parts)) >= classes
    if kind == "iid":
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_another_seed_gives_another_partition() -> None:
    labels = pool(10, 50)
    for kind in ("dirichlet", "iid"):
        one, two = (partition(labels, 5, kind, stream(seed, "partition"), alpha=0.5) for seed in (0, 1))
        assert not all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("clients", "alpha", "classes", "each"), [(10, 0.1, 10, 500), (50, 0.1, 100, 120)])
def test_dirichlet_at_the_papers_skew_gives_every_client_at_least_one_sample_per_class(
    clients: int, alpha: float, classes: int, each: int
) -> None:
    parts = partition(pool(classes, each), clients, "dirichlet", stream(3, "partition"), alpha=alpha)
    assert_covers(parts, classes * each)
    assert min(map(len, parts)) >= classes


def test_a_small_alpha_is_more_skewed_than_a_large_one() -> None:
    labels = pool(10, 200)

    def largest_share(alpha: float) -> float:
        parts = partition(labels, 10, "dirichlet", stream(0, "partition"), alpha=alpha)
        return float(np.mean([max(Counter(labels[part]).values()) / len(part) for part in parts]))

    assert largest_share(0.1) > largest_share(1.0) > largest_share(100.0)


def test_dirichlet_shuffles_each_client_so_that_classes_do_not_come_in_blocks() -> None:
    labels = pool(10, 100)
    for part in partition(labels, 3, "dirichlet", stream(0, "partition"), alpha=100.0):
        changes = sum(a != b for a, b in pairwise(labels[part]))
        assert changes > len(part) / 2


def test_pat_with_two_of_ten_classes_makes_pairs_of_clients_with_the_same_two_classes() -> None:
    labels = pool(10, 41)
    parts = partition(labels, 10, "pat", stream(0, "partition"), classes_per_client=2)
    held = Counter(tuple(np.unique(labels[part])) for part in parts)
    assert held == {(k, k + 1): 2 for k in range(0, 10, 2)}
    # 41 samples over two clients: 20 by the rule, and the last one takes the remainder.
    assert sorted(map(len, parts)) == [40] * 5 + [42] * 5
    for part in parts:
        for k in np.unique(labels[part]):
            mine, whole = part[labels[part] == k], np.flatnonzero(labels == k)
            assert np.array_equal(mine, whole[:20]) or np.array_equal(mine, whole[20:])


def test_pat_hands_its_parts_out_by_a_random_permutation() -> None:
    labels = pool(10, 40)
    orders = {
        tuple(int(labels[part].min()) for part in partition(labels, 10, "pat", stream(seed, "partition")))
        for seed in range(5)
    }
    assert len(orders) == 5


def test_pat_with_all_classes_gives_every_client_every_class_in_equal_parts() -> None:
    labels = pool(10, 50)
    for part in partition(labels, 5, "pat", stream(0, "partition"), classes_per_client=10):
        assert Counter(labels[part].tolist()) == dict.fromkeys(range(10), 10)


def test_unbalanced_pat_differs_in_size_but_not_below_the_smallest() -> None:
    labels = pool(10, 100)
    parts = partition(labels, 10, "pat", stream(0, "partition"), classes_per_client=2, balance=False, smallest=20)
    assert_covers(parts, 1000)
    sizes = [size for part in parts for size in Counter(labels[part].tolist()).values()]
    assert min(sizes) >= 20
    assert len(set(sizes)) > 5
    even = partition(labels, 10, "pat", stream(0, "partition"), classes_per_client=2, balance=False, smallest=99)
    assert {len(part) for part in even} == {100}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "dirichlett"}, "dirichlet, pat, iid"),
        ({"clients": 0}, "at least 1 client"),
        ({"kind": "dirichlet", "alpha": 0.0}, "positive"),
        ({"kind": "dirichlet", "alpha": float("nan")}, "positive"),
        ({"kind": "dirichlet", "clients": 11}, "at most 10 clients"),
        ({"kind": "dirichlet", "clients": 10, "alpha": 0.5}, "larger alpha"),
        ({"kind": "pat", "classes_per_client": 0}, "between 1 and 10"),
        ({"kind": "pat", "classes_per_client": 11}, "between 1 and 10"),
        ({"kind": "pat", "clients": 3}, "at least 5 clients or 4 classes"),
        ({"kind": "pat", "clients": 5, "classes_per_client": 3}, "leaves 1 of them without data"),
        ({"kind": "iid", "clients": 101}, "fewer clients"),
        ({"labels": np.zeros((0,), np.int64)}, "non-empty"),
        ({"labels": np.zeros((3, 2), np.int64)}, "1-D"),
    ],
)
def test_mistakes_are_named_with_what_would_be_right(change: dict[str, object], words: str) -> None:
    arguments = {"labels": pool(10, 10), "clients": 5, "kind": "iid", "rng": stream(0, "partition")} | change
    with pytest.raises(UserError, match=words):
        partition(**arguments)  # type: ignore[arg-type]


@given(size=st.integers(2, 300), fraction=st.floats(0.5, 0.9), seed=st.integers(0, 99))
def test_split_shuffles_and_keeps_the_first_part_for_training(size: int, fraction: float, seed: int) -> None:
    indices = np.arange(1000, 1000 + size)
    train, test = split(indices, fraction, stream(seed, "split"))
    assert len(train) == int(fraction * size)
    assert np.array_equal(np.sort(np.concatenate([train, test])), indices)
    assert np.array_equal(train, split(indices, fraction, stream(seed, "split"))[0])


@pytest.mark.parametrize(
    ("size", "fraction", "words"), [(1, 0.8, "no training"), (0, 0.8, "no training"), (4, 1.0, "no test")]
)
def test_split_refuses_an_empty_side(size: int, fraction: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        split(np.arange(size), fraction, stream(0, "split"))
