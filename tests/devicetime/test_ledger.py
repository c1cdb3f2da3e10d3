"""The books: what differs is named, with its device, what was ordered and what was done."""

from __future__ import annotations

from hetsys.core.devicetime.ledger import Entry, Ledger, mismatches

LINEAR, SENT = Entry("d0", "linear", rows=8), Entry("d0", "send", num_bytes=64, peer="d1")
OTHER = Entry("d1", "attention", rows=2, kv_tokens=30)


def ledger(*entries: Entry) -> Ledger:
    made = Ledger()
    for entry in entries:
        made.write(entry)
    return made


def test_balanced_books_have_nothing_to_say_and_devices_know_no_order() -> None:
    assert mismatches(ledger(LINEAR, OTHER, SENT), ledger(OTHER, LINEAR, SENT)) == []
    assert mismatches(ledger(), ledger()) == []


def test_what_was_forgotten_is_named() -> None:
    assert mismatches(ledger(LINEAR, SENT, OTHER), ledger(SENT, OTHER)) == [
        "d0, line 1: ordered linear rows=8, done send bytes=64 with d1; [linear rows=8] ordered 1 times, done 0 times"
    ]


def test_what_was_done_twice_is_named() -> None:
    assert mismatches(ledger(LINEAR), ledger(LINEAR, LINEAR)) == [
        "d0, line 2: ordered nothing more, done linear rows=8; [linear rows=8] ordered 1 times, done 2 times"
    ]


def test_other_rows_are_named() -> None:
    assert mismatches(ledger(LINEAR), ledger(Entry("d0", "linear", rows=7))) == [
        "d0, line 1: ordered linear rows=8, done linear rows=7; [linear rows=8] ordered 1 times, done 0 times; "
        "[linear rows=7] ordered 0 times, done 1 times"
    ]


def test_the_wrong_device_is_named_at_both() -> None:
    found = mismatches(ledger(LINEAR), ledger(Entry("d1", "linear", rows=8)))
    assert [line.split(";")[0] for line in found] == [
        "d0, line 1: ordered linear rows=8, done nothing more",
        "d1, line 1: ordered nothing more, done linear rows=8",
    ]


def test_the_wrong_order_is_named() -> None:
    assert mismatches(ledger(LINEAR, SENT), ledger(SENT, LINEAR)) == ["d0, line 1: ordered linear rows=8, done send bytes=64 with d1"]


def test_settled_lines_are_counted_and_forgotten() -> None:
    ordered, done = ledger(LINEAR, SENT), ledger(LINEAR, SENT)
    assert ordered.take() == done.take() == [LINEAR, SENT]
    ordered.write(LINEAR)
    assert mismatches(ordered, done)[0].startswith("d0, line 3: ordered linear rows=8, done nothing more")
    assert ordered.devices == ["d0"]
    assert ordered.settled("d0") == 2


def test_whole_numbers_are_equal_whatever_their_type() -> None:
    assert mismatches(ledger(Entry("d0", "linear", rows=8.0)), ledger(LINEAR)) == []
