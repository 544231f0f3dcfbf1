"""The pool: asks for nodes used and spare at once, and gives back late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raystream.controller.elastic.pool import Pool, PoolNode, PoolOptions, Request, next_pool, told

OPTIONS = PoolOptions(spare=2, idle_seconds=10.0, nodes_max=8)


def nodes(used: str = "", free: str = "", ending: str = "") -> list[PoolNode]:
    """Nodes of one letter each; an ending one that is in use is in both."""
    names = sorted({*used, *free, *ending})
    return [PoolNode(n, n in used, n in ending) for n in names]


def test_a_pool_is_filled_up_behind_what_is_used() -> None:
    pool = next_pool(Pool(), [], OPTIONS, 0.0)
    assert (pool.request, pool.missing) == (Request(2), 2)
    pool = next_pool(pool, nodes(free="ab"), OPTIONS, 30.0)
    assert (pool.request, pool.missing, pool.surplus) == (Request(2), 0, {})
    pool = next_pool(pool, nodes(used="a", free="b"), OPTIONS, 31.0)
    assert (pool.request, pool.missing, pool.since) == (Request(3), 1, 31.0)
    assert next_pool(pool, nodes(used="a", free="b"), OPTIONS, 90.0).since == 31.0


def test_what_plans_wait_for_is_asked_for_at_once_and_no_more_than_there_may_be() -> None:
    assert next_pool(Pool(), nodes(used="a"), OPTIONS, 0.0, wanted=3).request == Request(6)
    pool = next_pool(Pool(), nodes(used="a"), OPTIONS, 0.0, wanted=30)
    assert (pool.request, pool.missing) == (Request(8), 32)
    # A node that ends is still one of those that there may be.
    pool = next_pool(Pool(), nodes(used="a", ending="b"), OPTIONS, 0.0, wanted=30)
    assert pool.request == Request(7, ("b",))


def test_a_node_is_given_back_when_it_was_too_many_for_long_enough() -> None:
    pool = next_pool(Pool(), nodes(used="a", free="bcd"), OPTIONS, 0.0)
    assert pool.surplus == {"b": 0.0} and not pool.returned
    assert next_pool(pool, nodes(used="a", free="bcd"), OPTIONS, 9.9) == pool
    pool = next_pool(pool, nodes(used="a", free="bcd"), OPTIONS, 10.0)
    assert pool.returned == {"b"} and pool.request == Request(3, ("b",))
    again = next_pool(pool, nodes(used="a", free="bcd"), OPTIONS, 11.0)
    assert again == pool  # until the controller leaves it
    pool = next_pool(again, nodes(used="a", free="cd", ending="b"), OPTIONS, 12.0)
    assert not pool.returned and pool.request == Request(3, ("b",))
    assert next_pool(pool, nodes(used="a", free="cd"), OPTIONS, 13.0).request == Request(3)


def test_a_node_that_was_needed_in_between_is_kept() -> None:
    pool = next_pool(Pool(), nodes(used="a", free="bcd"), OPTIONS, 0.0)
    pool = next_pool(pool, nodes(used="ac", free="bd"), OPTIONS, 5.0)
    pool = next_pool(pool, nodes(used="a", free="bcd"), OPTIONS, 11.0)
    assert not pool.returned and pool.surplus == {"b": 11.0}


def test_another_node_comes_for_one_that_ends() -> None:
    there = nodes(used="ab", free="cd", ending="b")
    pool = next_pool(Pool(), there, OPTIONS, 0.0)
    assert pool.request == Request(4, ("b",)) and pool.missing == 1
    moved = nodes(used="ac", free="d", ending="b")
    pool = next_pool(pool, moved, OPTIONS, 1.0)
    assert pool.request == Request(4, ("b",)) and pool.missing == 1


def spots(spot: str = "", other: str = "", ending: str = "") -> list[PoolNode]:
    """Nodes of one letter each, all in use."""
    return [PoolNode(n, True, n in ending, n in spot) for n in sorted({*spot, *other})]


def test_where_no_spot_machine_comes_others_are_asked_for() -> None:
    options = PoolOptions(spare=2, nodes_max=8, spot_seconds=60.0)
    there = spots(spot="ab", other="c")
    pool = next_pool(Pool(), there, options, 0.0)
    pool = next_pool(pool, there, options, 59.0)
    assert pool.request == Request(5) and pool.waits == 0.0
    before, pool = pool, next_pool(pool, there, options, 60.0)
    assert pool.request == Request(5, no_spot=3)  # the two that are there may stay what they are
    assert "2 of 5 nodes are missing, and none has come for 60 s" in told(before, pool, options)
    before, pool = pool, next_pool(pool, there, options, 70.0)
    assert pool.request == Request(5, no_spot=3) and not told(before, pool, options)
    pool = next_pool(pool, spots(spot="ab", other="cd"), options, 80.0)  # one has come, and is used
    assert pool.request == Request(6) and pool.waits == 80.0


def test_whoever_waits_for_machines_that_come_one_by_one_waits_for_spot_machines() -> None:
    options = PoolOptions(spare=2, nodes_max=8, spot_seconds=60.0)
    pool = Pool()
    for n in range(1, 6):
        pool = next_pool(pool, spots(spot="abcde"[:n]), options, 50.0 * n)
        assert pool.request == Request(n + 2)


def test_nobody_waits_for_more_machines_than_there_may_be() -> None:
    options = PoolOptions(spare=2, nodes_max=3, spot_seconds=60.0)
    pool = next_pool(Pool(), spots(spot="abc"), options, 0.0)
    pool = next_pool(pool, spots(spot="abc"), options, 100.0)
    assert pool.request == Request(3) and pool.waits is None and pool.missing == 2


def test_a_spot_machine_that_ends_is_none_of_those_that_are_there() -> None:
    options = PoolOptions(spare=0, nodes_max=8, spot_seconds=60.0)
    there = spots(spot="ab", ending="b")
    pool = next_pool(Pool(), there, options, 0.0)
    pool = next_pool(pool, there, options, 60.0)
    assert pool.request == Request(2, ("b",), no_spot=1)


def test_of_nodes_that_are_too_many_spot_machines_stay() -> None:
    free = [PoolNode(n, False, False, n in "ac") for n in "abcd"]
    assert {*next_pool(Pool(), free, OPTIONS, 0.0).surplus} == {"b", "d"}


looks = st.lists(
    st.tuples(
        st.floats(0.1, 8.0),  # seconds since the look before
        st.sets(st.integers(0, 9)),  # alive
        st.sets(st.integers(0, 9)),  # used, if alive
        st.sets(st.integers(0, 9)),  # ending, if alive
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(looks)
def test_only_what_was_too_many_all_the_time_is_given_back(
    looks: list[tuple[float, set[int], set[int], set[int], int]],
) -> None:
    pool, now = Pool(), 0.0
    over_since: float | None = None
    for seconds, alive, used, ending, wanted in looks:
        now += seconds
        there = [PoolNode(str(n), n in used, n in ending) for n in sorted(alive)]
        pool = next_pool(pool, there, OPTIONS, now, wanted)
        needed = sum(n.used for n in there) + wanted + OPTIONS.spare
        asked = min(needed, max(0, OPTIONS.nodes_max - sum(n.ending for n in there)))
        kept = {n.name for n in there if not n.ending}
        free = {n.name for n in there if not n.used} & kept
        assert pool.request.nodes == asked and pool.missing == max(0, needed - len(kept))
        assert {*pool.surplus} <= free
        assert len(pool.surplus) == min(max(0, len(kept) - asked), len(free))
        # Whoever is given back, those that stay are enough; and it was too many for long.
        if pool.returned:
            assert len(kept - pool.returned) >= asked
            assert over_since is not None and now - over_since >= OPTIONS.idle_seconds
        assert {*pool.request.without} == pool.returned | {n.name for n in there if n.ending}
        over = len(kept) > asked
        over_since = (now if over_since is None else over_since) if over else None


@given(st.integers(0, 6), st.integers(0, 4), st.integers(0, 6))
def test_an_autoscaler_that_obeys_brings_as_many_as_are_wanted_and_keeps_no_more(
    used: int, spare: int, extra: int
) -> None:
    options = PoolOptions(spare, 10.0, 20)
    alive = {f"n{i}" for i in range(used + extra)}
    busy = {f"n{i}" for i in range(used)}
    pool, made = Pool(), 0
    for second in range(0, 40, 5):
        pool = next_pool(pool, [PoolNode(n, n in busy) for n in alive], options, float(second))
        alive -= pool.returned
        while len(alive) < pool.request.nodes:
            made += 1
            alive.add(f"new{made}")
    assert busy <= alive and len(alive) == used + spare
    assert made == max(0, spare - extra)
