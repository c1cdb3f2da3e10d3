"""The explanation of a scheduling run as a reader at a terminal sees it: sentences and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from hetsys.report.explain_facts import Bundle, Devices, Line, Span, Story
from hetsys.report.explain_rows import Row

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 140
_OTHERS, _USERS, _ROWS, _SPANS, _JOBS, _NAMES, _LEVELS, _PARKED = 10, 8, 8, 24, 6, 3, 4, 8
_NO_ENVY, _SMALL_PERCENT = 5e-4, 0.05


def console() -> Console:
    """Standard output; where it is no terminal, wide enough for a line a tenant."""
    from rich.console import Console

    out = Console()
    return out if out.is_terminal else Console(width=_PIPE_WIDTH)


def show_lines(lines: Sequence[Line], kinds: Sequence[str], gap: float | None, out: Console) -> None:
    """One line a tenant, then what the columns mean; `gap`: of a single round, see `metrics.pareto`."""
    order = " · ".join(kinds)
    heads = ("tenant", ">weight", ">rounds", f">allotted\n{order}", f">held\n{order}", ">of its\nslice", ">envy", "of whom")
    table = _table(*heads, ">jobs\ndone", ">restarts", ">parked")
    for line in lines:
        incentive = "–" if line.incentive is None else f"{line.incentive:.2f}"
        envy = "–" if line.envy is None else f"{line.envy:.2f}"
        table.add_row(
            line.tenant, f"{line.weight:g}", str(line.rounds), _devices(line.allotted), _devices(line.held), incentive, envy,
            line.envied or "" if (line.envy or 0.0) > _NO_ENVY else "", f"{line.finished} of {line.jobs}", str(line.restarts),
            str(line.parked),
        )  # fmt: skip
    out.print(table)
    _say(
        out,
        "Devices are means over the rounds in which the tenant had a live job: allotted by the policy in fractions, held by whole gangs "
        "(devices that nobody claimed included). Of its slice: what its allotment was worth to it, over what its own slice of every kind "
        "would have been. Envy: how much more than its own the best other share, for its weight, would have been worth to it. "
        "Jobs, restarts and parked: of the whole run. More of one tenant: --tenant NAME; of one round: --round N.",
    )
    if gap is not None:
        if gap < _NO_ENVY / 10:
            _say(out, "No other division of these devices gives anybody more without giving somebody less.")
        else:
            _say(out, f"Another division gives them {100 * gap:.2f} % more in total and nobody less; it may make one envy another.")


def show_story(story: Story, kinds: Sequence[str], out: Console) -> None:
    """What one tenant got and why, section by section; a section of which the run knows nothing says so."""
    _say(out, _when(story))
    if story.rounds:
        _show_bundles(story, kinds, out)
        _show_prices(story, kinds, out)
        _show_rows(story, out)
        _show_received(story, kinds, out)
        _show_spans(story, out)
    _show_jobs(story, out)


def _when(story: Story) -> str:
    if not story.rounds:
        return f"{story.tenant} had a live job in no round."
    rounds = f"round {story.first}" if story.rounds == 1 else f"{story.rounds} rounds, {story.first} to {story.last}"
    if story.own is None:
        return f"{story.tenant} had live jobs in {rounds}. Its weight is 0: it owns nothing and ran on devices that nobody claimed."
    return f"{story.tenant} had live jobs in {rounds}. Its weight is {story.weight:g}, {100 * story.share:.1f} % of all weight then."


def _show_bundles(story: Story, kinds: Sequence[str], out: Console) -> None:
    if story.own is None or story.alone is None:
        return
    _head(out, "What it got, and what else it might have had")
    what = "devices, means over time" if story.rounds > 1 else "devices"
    table = _table(what, *(f">{kind}" for kind in kinds), ">worth to it", ">÷ own", ">envy")
    table.add_row("allotted to it", *_bundle(story.own))
    table.add_row("alone: its own slice of every kind", *_bundle(story.alone)[:-1], "")
    for other in story.others[:_OTHERS]:
        met = f" (met in {other.rounds} rounds)" if other.rounds < story.rounds else ""
        table.add_row(f"the share of {other.name}{met}", *_bundle(other))
    out.print(table)
    _more(out, len(story.others) - _OTHERS, "tenant", ", whose share it likes no better")
    _say(out, _judged(story))


def _judged(story: Story) -> str:
    worst = max(story.others, key=lambda other: other.envy, default=None)
    envies = f"It envies {worst.name} most, by {100 * worst.envy:.1f} %." if worst and worst.envy > _NO_ENVY else "It envies nobody."
    return (
        f"{_gain(story.incentive)} {envies} Worth is counted in devices of the slowest kind that its jobs run on, best kinds first, for no "
        "more devices than its jobs can hold; others' shares are scaled to its weight. Gain and envy are averaged as ratios (envy as 0 "
        "while it would lose by the share), as in summary.json, which takes the first half of the run's work."
    )


def _gain(incentive: float | None) -> str:
    if incentive is None:
        return "Its own slice would have been worth nothing to it."
    change = 100 * (incentive - 1)
    if abs(change) < _SMALL_PERCENT:
        return "What it was allotted is worth to it what its own slice is."
    return f"By sharing it {'gained' if change > 0 else 'lost'} {abs(change):.1f} % over its own slice."


def _show_prices(story: Story, kinds: Sequence[str], out: Console) -> None:
    _head(out, "Prices")
    if story.prices is None:
        _say(out, "This policy sets none.")
    else:
        table = _table("", *(f">{kind}" for kind in kinds), "cheapest")
        table.add_row("one more device adds, to what the policy maximises", *map(_number, story.prices), "")
        for user in story.users[:_USERS]:
            name = user.name.removeprefix(f"{story.tenant}/")
            table.add_row(f"a unit of throughput costs {name}", *map(_number, user.cost), user.cheapest or "")
        out.print(table)
        _more(out, len(story.users) - _USERS, "user")
        _say(out, _cheapest(story, kinds))
    if story.levels:
        _say(out, f"Level reached (what the policy evens out): {_levels(story.levels)}.")


def _cheapest(story: Story, kinds: Sequence[str]) -> str:
    best = sorted({user.cheapest for user in story.users if user.cheapest}, key=list(kinds).index)
    if not best and any(user.cost for user in story.users):
        return (
            "It runs on a kind that costs nothing: prices are those of the lowest level, and it was raised further on what that leaves. "
            "So they do not say which kinds it holds."
        )
    if not best:
        return "Nothing is bought for it: it owns nothing, or no price is above 0."
    return (
        f"At these prices its cheapest kind is {' or '.join(best)}: price over speed is least there. Prices are means over time; rows of "
        "envy and limited demand may still give it another kind."
    )


def _levels(levels: dict[str, float]) -> str:
    if len(levels) <= _LEVELS:
        return ", ".join(f"{value:.4g} ({name})" for name, value in sorted(levels.items()))
    values = sorted(levels.values())
    return f"{values[0]:.4g} to {values[-1]:.4g}, median {median(values):.4g}, of {len(values)} claims"


def _show_rows(story: Story, out: Console) -> None:
    _head(out, "Rows of envy that held the answer back")
    if not story.rows:
        _say(out, "None that concerns it." if story.binding_rounds else "This policy records none.")
        return
    for row in story.rows[:_ROWS]:
        _say(out, f"  {_row_text(story.tenant, row)}; dual {row.dual:.3g}, in {row.rounds} round{'s' * (row.rounds != 1)}")
    _more(out, len(story.rows) - _ROWS, "row")
    _say(out, "Dual: the total throughput that one unit of the row costs, mean over the rounds in which it bound.")
    _say(out, "Rows bind users, the jobs of one tenant, type and gang; the envy above is that of whole tenants.")


def _row_text(tenant: str, row: Row) -> str:
    """`with any less for its weight it would envy b`, or `b would envy it if it got any more for its weight`."""
    if tenant in row.envious:
        alike = _names(name for name in row.envious if name != tenant)
        like = f" (as would {alike})" if alike else ""
        whom = "another user of its own" if row.envied == (tenant,) else _names(name for name in row.envied if name != tenant)
        return f"with any less it would envy {whom}{like}"
    alike = _names(name for name in row.envied if name != tenant)
    return f"with any more for it{f' and {alike}' if alike else ''}, {_names(row.envious)} would envy it"


def _show_received(story: Story, kinds: Sequence[str], out: Console) -> None:
    _head(out, "Entitlement, and what came of it")
    table = _table("devices x rounds", *(f">{kind}" for kind in kinds), ">all", ">of the allotted")
    whole = sum(story.allotted_rounds)
    rows = {"its own slice": story.slice_rounds, "allotted": story.allotted_rounds, "held": story.held_rounds}
    for name, values in rows.items():
        part = f"{100 * sum(values) / whole:.0f} %" if whole > 0 and name == "held" else ""
        table.add_row(name, *(f"{value:,.1f}" for value in values), f"{sum(values):,.1f}", part)
    out.print(table)
    _say(out, "Held above the allotted: devices that nobody claimed. A device counts for the whole round in which a job held it.")


def _show_spans(story: Story, out: Console) -> None:
    busy = story.rounds - story.waiting
    _head(out, "What it held when")
    table = _table("rounds", "held", "by")
    for span in story.spans[:_SPANS]:
        when = f"{span.first}" if span.first == span.last else f"{span.first}–{span.last}"
        table.add_row(when, *_span(span))
    out.print(table)
    _more(out, len(story.spans) - _SPANS, "span", "; --format json has all")
    if story.rounds > 1:
        _say(out, f"It held devices in {busy} of its {story.rounds} rounds and waited in {story.waiting}.")


def _span(span: Span) -> tuple[str, str]:
    totals: dict[str, int] = {}
    for _, count, kind in span.held:
        name = kind if " + " not in kind else f"mixed ({kind})"
        totals[name] = totals.get(name, 0) + count
    jobs = [f"{job} ({count} {kind})" if " + " not in kind else f"{job} ({kind})" for job, count, kind in span.held]
    shown = ", ".join(jobs[:_JOBS]) + (f" and {len(jobs) - _JOBS} more" if len(jobs) > _JOBS else "")
    return " + ".join(f"{count} {kind}" for kind, count in totals.items()) or "nothing: waits", shown


def _show_jobs(story: Story, out: Console) -> None:
    if story.jobs:
        said = ", ".join(f"{count} {status}" for status, count in sorted(story.jobs.items()))
        moves = f"{story.restarts} restarts on other devices, {story.preemptions} preemptions, {story.crashes} crashes"
        _head(out, "Jobs, of the whole run")
        _say(out, f"{said}; {moves}.")
    for job, reason in story.parked[:_PARKED]:
        _say(out, f"  parked: {f'job {job}' if job else 'the tenant'}: {reason}")
    _more(out, len(story.parked) - _PARKED, "parked job")


def _bundle(bundle: Bundle) -> tuple[str, ...]:
    of_own = "–" if bundle.of_own is None else f"{bundle.of_own:.3f}"
    envy = f"{bundle.envy:.3f}" if bundle.envy > _NO_ENVY else "0"
    return (*(f"{value:.2f}" for value in bundle.devices), f"{bundle.worth:.2f}", of_own, envy)


def _devices(devices: Devices) -> str:
    return " · ".join(f"{value:.2f}" for value in devices)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _names(names: Iterable[str]) -> str:
    """`a, b, c and 4 more`."""
    known = list(names)
    more = f" and {len(known) - _NAMES} more" if len(known) > _NAMES else ""
    return ", ".join(known[:_NAMES]) + more


def _more(out: Console, count: int, what: str, then: str = "") -> None:
    if count > 0:
        _say(out, f"  ... and {count} more {what}{'s' * (count != 1)}{then}")


def _head(out: Console, text: str) -> None:
    out.print(f"\n{text}", markup=False, highlight=False, style="bold")


def _say(out: Console, text: str) -> None:
    out.print(text, markup=False, highlight=False)


def _table(*columns: str) -> Table:
    """A table of named columns; a leading `>` aligns to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return table
