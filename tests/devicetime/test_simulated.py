"""Device time, worked out by hand: causality, streams, serial wires, collectives, the host, and what cannot be asked."""

from __future__ import annotations

import pytest

from hetsys.core.cluster import Cluster, Link, NodeGroup
from hetsys.core.devicetime.ledger import Entry
from hetsys.core.devicetime.machine import Done, Work
from hetsys.core.devicetime.simulated import SimMachine
from hetsys.core.errors import ConfigError
from tests.devicetime.frames import US, Linear, cluster_of, drain, op, spans


def machine(cluster: Cluster | None = None, cost: Linear | None = None) -> SimMachine:
    return SimMachine(cluster or four_hosts(), cost or Linear())


def four_hosts() -> Cluster:
    """d-0-0, d-1-0, d-2-0, d-3-0: one device a host, 1 kB a microsecond between any two."""
    return cluster_of(NodeGroup("d", 1, 4))


def test_a_device_works_in_the_order_of_submission() -> None:
    m = machine()
    first, second = m.compute("d-0-0", op(3)), m.compute("d-0-0", op(2))
    other = m.compute("d-1-0", op(4))
    assert spans(drain(m)) == {first: (0, 3), second: (3, 5), other: (0, 4)}
    assert m.now_ns == 5 * US
    assert m.busy_ns == {"d-0-0": 5 * US, "d-1-0": 4 * US}


def test_each_kind_of_device_has_its_own_speed() -> None:
    m = SimMachine(cluster_of(NodeGroup("slow", 1), NodeGroup("fast", 1)), Linear(slower=(("slow", 3.0),)))
    slow, fast = m.compute("slow-0-0", op(2)), m.compute("fast-0-0", op(2))
    assert spans(drain(m)) == {fast: (0, 2), slow: (0, 6)}


def test_nothing_starts_before_what_it_comes_after_and_a_waiting_operation_holds_up_its_device() -> None:
    m = machine()
    far = m.compute("d-1-0", op(7))
    waits = m.compute("d-0-0", op(1), after=[far])
    behind = m.compute("d-0-0", op(1))
    assert spans(drain(m)) == {far: (0, 7), waits: (7, 8), behind: (8, 9)}


def test_idle_time_earns_no_credit() -> None:
    m = machine()
    m.compute("d-0-0", op(1))
    drain(m)
    assert m.next(until_ns=100 * US) is None
    assert m.now_ns == 100 * US
    late = m.compute("d-0-0", op(2))
    message = m.send("d-0-0", "d-1-0", 3_000)
    assert spans(drain(m)) == {late: (100, 102), message: (100, 103)}


def test_the_clock_stops_at_until_and_what_ends_there_counts() -> None:
    m = machine()
    ticket = m.compute("d-0-0", op(10))
    assert m.next(until_ns=9_999) is None
    assert m.now_ns == 9_999
    assert m.next(until_ns=10_000) == Done(ticket, "d-0-0", 0, 10_000)
    assert m.next() is None
    with pytest.raises(AssertionError, match="does not go back"):
        m.next(until_ns=5)


def test_completions_of_one_instant_come_by_ticket() -> None:
    m = machine()
    tickets = [m.compute(f"d-{i}-0", op(5)) for i in (3, 1, 0, 2)]
    assert [done.ticket for done in drain(m)] == tickets


def test_three_senders_into_one_nic_take_three_times_as_long() -> None:
    m = machine()
    tickets = [m.send(f"d-{i}-0", "d-3-0", 5_000) for i in range(3)]
    assert spans(drain(m)) == dict(zip(tickets, [(0, 5), (5, 10), (10, 15)], strict=True))


def test_one_sender_to_three_takes_three_times_as_long() -> None:
    m = machine()
    tickets = [m.send("d-3-0", f"d-{i}-0", 5_000) for i in range(3)]
    assert spans(drain(m)) == dict(zip(tickets, [(0, 5), (5, 10), (10, 15)], strict=True))


def test_disjoint_pairs_overlap_and_so_do_the_two_directions_of_a_nic() -> None:
    m = machine()
    tickets = [m.send(*pair, 5_000) for pair in (("d-0-0", "d-1-0"), ("d-2-0", "d-3-0"), ("d-1-0", "d-0-0"))]
    assert spans(drain(m)) == dict.fromkeys(tickets, (0, 5))


def test_devices_of_one_node_share_its_nic_but_have_links_of_their_own_inside() -> None:
    m = machine(cluster_of(NodeGroup("d", 4, 2)))
    across = [m.send(f"d-0-{i}", f"d-1-{i}", 5_000) for i in range(2)]
    inside = [m.send("d-0-0", "d-0-1", 20_000), m.send("d-0-2", "d-0-3", 20_000), m.send("d-0-2", "d-0-1", 20_000)]
    assert spans(drain(m)) == {across[0]: (0, 5), across[1]: (5, 10), inside[0]: (0, 2), inside[1]: (0, 2), inside[2]: (2, 4)}


def test_the_wire_is_free_again_before_the_message_has_arrived() -> None:
    m = machine(cluster_of(NodeGroup("d", 1, 2), inter=Link(1e9, latency_s=7e-6)))
    first, second = m.send("d-0-0", "d-1-0", 2_000), m.send("d-0-0", "d-1-0", 2_000)
    empty = m.send("d-1-0", "d-0-0", 0)
    assert spans(drain(m)) == {empty: (0, 7), first: (0, 9), second: (2, 11)}


def test_who_is_ready_first_goes_first_whatever_the_order_of_submission() -> None:
    m = machine()
    slow, quick = m.compute("d-0-0", op(9)), m.compute("d-1-0", op(4))
    occupied = m.send("d-2-0", "d-3-0", 20_000)
    late = m.send("d-0-0", "d-3-0", 1_000, after=[slow])
    early = m.send("d-1-0", "d-3-0", 1_000, after=[quick])
    times = spans(drain(m))
    assert (times[occupied], times[early], times[late]) == ((0, 20), (20, 21), (21, 22))


def test_equally_ready_messages_go_by_ticket_even_if_their_causes_end_in_another_order() -> None:
    m = machine()
    cause_b, cause_a = m.compute("d-1-0", op(4)), m.compute("d-0-0", op(4))
    first = m.send("d-0-0", "d-3-0", 1_000, after=[cause_a])
    second = m.send("d-1-0", "d-3-0", 1_000, after=[cause_b])
    times = spans(drain(m))
    assert (times[first], times[second]) == ((4, 5), (5, 6))


def test_a_message_that_waits_does_not_hold_up_one_that_can_go() -> None:
    m = machine()
    busy = m.send("d-0-0", "d-1-0", 10_000)
    waits = m.send("d-0-0", "d-2-0", 1_000)
    passes = m.send("d-3-0", "d-2-0", 4_000)
    assert spans(drain(m)) == {passes: (0, 4), busy: (0, 10), waits: (10, 11)}


def test_a_message_takes_all_it_needs_at_once() -> None:
    m = machine()
    m.send("d-0-0", "d-1-0", 3_000)
    m.send("d-2-0", "d-3-0", 5_000)
    both = m.send("d-0-0", "d-3-0", 1_000)
    assert spans(drain(m))[both] == (5, 6)


def test_a_collective_waits_for_all_of_its_devices_and_holds_them_and_their_wires() -> None:
    m = machine()
    work = m.compute("d-0-0", op(6))
    together = m.collective("all_reduce", ["d-0-0", "d-1-0"], 4_000)
    behind = m.compute("d-1-0", op(1))
    out = m.send("d-2-0", "d-1-0", 8_000, after=[work])
    last = m.send("d-0-0", "d-3-0", 1_000, after=[work])
    # ring of two: 2 steps of 2,000 bytes = 4 us; it and `out` are ready at 6, and its ticket is lower
    assert spans(drain(m)) == {work: (0, 6), together: (6, 10), behind: (10, 11), out: (10, 18), last: (10, 11)}


def test_a_collective_of_one_device_costs_nothing() -> None:
    m = machine()
    ticket = m.collective("all_gather", ["d-0-0"], 4_000)
    assert spans(drain(m)) == {ticket: (0, 0)}


def test_a_lane_of_the_host_passes_one_decision_after_the_other() -> None:
    m = machine()
    decided = [m.host("planner", 3 * US), m.host("planner", 2 * US), m.host("other", 1 * US)]
    step = m.compute("d-0-0", op(1), after=[decided[1]])
    assert spans(drain(m)) == {decided[2]: (0, 1), decided[0]: (0, 3), decided[1]: (3, 5), step: (5, 6)}


def test_operations_of_no_duration_pass_through_in_their_order() -> None:
    m = machine()
    chain = [m.compute("d-0-0", op(0))]
    for i in range(1, 4):
        chain.append(m.compute(f"d-{i}-0", op(0), after=[chain[-1]]))
    assert [done.ticket for done in drain(m)] == chain
    assert m.now_ns == 0


def test_a_result_does_not_exist_before_its_time() -> None:
    m = machine()
    ticket = m.compute("d-0-0", op(2), Work("f", returns=True))
    with pytest.raises(AssertionError, match=f"operation {ticket} does not exist yet at 0 ns"):
        m.value(ticket)
    drain(m)
    assert m.value(ticket) is None


def test_a_value_that_is_still_being_made_cannot_be_sent() -> None:
    m = machine()
    m.compute("d-0-0", op(2), Work("f", gives=("x",)))
    with pytest.raises(AssertionError, match="takes 'x', still made by 0: put that into `after`"):
        m.send("d-0-0", "d-1-0", 1_000, Work(takes=("x",)))


def test_a_value_that_is_still_under_way_cannot_be_used() -> None:
    m = machine()
    m.send("d-0-0", "d-1-0", 1_000, Work(takes=("x",)))
    with pytest.raises(AssertionError, match="takes 'x', still made by 0"):
        m.compute("d-1-0", op(1), Work("f", takes=("x",)))


def test_the_ledger_holds_what_was_ordered_device_by_device() -> None:
    m = machine()
    work = m.compute("d-0-0", op(2, "linear"))
    sent = m.send("d-0-0", "d-1-0", 700, after=[work])
    m.compute("d-1-0", op(5, "attention"), after=[sent])
    m.collective("broadcast", ["d-1-0", "d-0-0"], 64)
    drain(m)
    assert m.ledger.lines("d-0-0") == [
        Entry("d-0-0", "linear", 2),
        Entry("d-0-0", "send", num_bytes=700, peer="d-1-0"),
        Entry("d-0-0", "broadcast", num_bytes=64, peer="d-1-0+d-0-0"),
    ]
    assert m.ledger.lines("d-1-0") == [
        Entry("d-1-0", "receive", num_bytes=700, peer="d-0-0"),
        Entry("d-1-0", "attention", 5),
        Entry("d-1-0", "broadcast", num_bytes=64, peer="d-1-0+d-0-0"),
    ]


def test_no_ledger_is_kept_where_none_is_wanted() -> None:
    m = SimMachine(four_hosts(), Linear(), keep_ledger=False)
    m.compute("d-0-0", op(2))
    drain(m)
    assert m.ledger.devices == []


def test_a_misspelt_device_is_named() -> None:
    with pytest.raises(ConfigError, match="device='d-0-9': did you mean 'd-0-0'"):
        machine().compute("d-0-9", op(1))


def test_nothing_can_come_after_what_was_not_submitted() -> None:
    with pytest.raises(AssertionError, match="cannot come after 3"):
        machine().compute("d-0-0", op(1), after=[3])


@pytest.mark.parametrize("seconds", [float("nan"), -1e-9])
def test_a_duration_that_is_none_is_refused(seconds: float) -> None:
    class Broken(Linear):
        def duration_s(self, device_kind: str, op: object) -> float:
            return seconds

    with pytest.raises(AssertionError, match="a duration of"):
        SimMachine(four_hosts(), Broken()).compute("d-0-0", op(1))
