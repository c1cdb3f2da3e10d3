"""`hetsys explain`: finds the run, says what is wrong with the question, and hands the facts to the terminal or to JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hetsys.core.errors import ConfigError, check_choice
from hetsys.core.scheduling.record import RoundRecord
from hetsys.metrics.fairness import merge_tenants
from hetsys.metrics.pareto import pareto_gap
from hetsys.report.explain_facts import Records, lines, story
from hetsys.report.explain_text import console, show_lines, show_story
from hetsys.tracking.stored import StoredRun
from hetsys.tracking.views import one_run

DOMAINS = ("scheduling",)
FORMATS = ("table", "json")


def main(run: str, results: Path, *, tenant: str | None = None, round_index: int | None = None, fmt: str = "table") -> int:
    """Explain the stored run that `run` means: one line a tenant, or all of `tenant`; over the whole run, or in round `round_index`.

    Returns the exit code, 2 where none or several runs match (they are listed). Raises ConfigError for a run of a domain that has no
    explanation or without a round, an unknown tenant, and a round that the run or the tenant did not have.
    """
    out = console()
    found = one_run(run, results, out)
    if found is None:
        return 2
    records = _records(found)
    if tenant is not None:
        check_choice("--tenant", tenant, records.tenants)
    rounds = _rounds(records, tenant, round_index)
    gap = None if round_index is None else pareto_gap(merge_tenants(rounds[0].users), rounds[0].capacity)
    if fmt == "json":
        facts = [story(records, tenant, rounds)] if tenant is not None else lines(records, rounds)
        head = {**_head(found), "kinds": records.kinds, "round": round_index, "rounds": len(records.rounds), "pareto_gap_fraction": gap}
        json.dump(head | {"tenants": [asdict(fact) for fact in facts]}, sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
        return 0
    out.print(_title(found, records, round_index), markup=False, highlight=False, soft_wrap=True)
    if tenant is None:
        show_lines(lines(records, rounds), records.kinds, gap, out)
    else:
        show_story(story(records, tenant, rounds), records.kinds, out)
    return 0


def _records(run: StoredRun) -> Records:
    if run.status == "planned":
        raise ConfigError("run", str(run.path), "was only planned (plan_only=true); `hetsys show` prints its plan, `hetsys run` runs it")
    domain = run.env.get("domain")
    if domain not in DOMAINS:
        known = ", ".join(DOMAINS)
        raise ConfigError("run", str(run.path), f"is of the domain {domain!r}, of which nothing is explained; choices: {known}")
    records = Records.of(run.records(), run.plan.get("kinds") or list(run.env.get("devices") or {}))
    if not records.rounds:
        raise ConfigError("run", str(run.path), f"has no record of a round ({run.status}), so there is nothing to explain")
    return records


def _rounds(records: Records, tenant: str | None, index: int | None) -> Sequence[RoundRecord]:
    """The rounds that are asked for."""
    if index is None:
        return records.rounds
    chosen = [record for record in records.rounds if record.index == index]
    if not chosen:
        raise ConfigError("--round", index, f"the run has rounds {records.rounds[0].index} to {records.rounds[-1].index}")
    if tenant is not None and tenant not in chosen[0].progress:
        lived = [record.index for record in records.rounds if tenant in record.progress]
        when = f"between rounds {lived[0]} and {lived[-1]}" if lived else "in no round; without --round, what was parked is listed"
        raise ConfigError("--round", index, f"{tenant} had no live job then; it had some {when}")
    return chosen


def _head(run: StoredRun) -> dict[str, Any]:
    return {
        "experiment": run.experiment, "system": run.system, "label": run.label, "seed": run.seed, "status": run.status,
        "source": run.source, "path": str(run.path),
    }  # fmt: skip


def _title(run: StoredRun, records: Records, index: int | None) -> str:
    what = f"{run.label}, seed {run.seed} of {run.experiment} ({run.source or 'source unknown'})"
    when = f"round {index} of {len(records.rounds)}" if index is not None else f"{len(records.rounds)} rounds"
    text = f"{what}: {when}, {len(records.tenants)} tenants"
    if run.status == "finished":
        return text
    return text + f"\nThis run is {run.status}: what follows is all that was recorded; jobs then under way have left no record."
