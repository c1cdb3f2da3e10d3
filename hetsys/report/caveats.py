"""What a reader must know of runs beside their figures: solvers that failed, jobs that were parked or never finished, invalid seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from hetsys.core.errors import EngineError
from hetsys.tracking.stored import StoredRun

_REASONS = 2
_PREDICTED = {"throughput": "throughput_prediction_error_fraction", "mean JCT": "jct_prediction_error_fraction"}
LEAST_CPU_SHARE = 0.95
_ALL_JOBS = ("jobs_finished", "jobs_unfinished", "jobs_withdrawn", "jobs_parked")


def caveats(runs: Sequence[StoredRun]) -> list[str]:
    """One line for each system whose solver failed, then one each for parked, unfinished and withdrawn jobs; none where all went well.

    `runs` are finished. Jobs are counted once a seed where the systems of every seed agree, and by system where they do not. The
    reasons of parked jobs are read from the records of one run a seed.
    """
    lines = []
    for label, group in _by_label(runs):
        if failures := solver_failures(group):
            whole = _sum(group, "solver_fallbacks", "solver_kept") == _sum(group, "rounds")
            lines.append(f"{label}: {failures}; its figures are {'not the policy' if whole else 'only in part the policy'}'s")
    if crashes := _sum(runs, "crashes"):
        where = ", ".join(f"{label} {count}" for label, group in _by_label(runs) if (count := _sum(group, "crashes")))
        lines.append(f"crashed: {crashes} lease{'s' * (crashes != 1)}, as a process of the job died ({where}; ledger.jsonl says which)")
    shares = [run.summary["worker_cpu_share"] for run in runs if run.summary.get("worker_cpu_share") is not None]
    if shares and min(shares) < LEAST_CPU_SHARE:
        got = f"workers got as little as {100 * min(shares):.0f} % of their processor time"
        lines.append(f"this machine was busy: {got}; repeat when it is quiet")
    one_a_seed = list({run.summary["seed"]: run for run in reversed(runs)}.values())
    if _sum(runs, "jobs_parked", "tenants_parked"):
        tenants = _sum(one_a_seed, "tenants_parked")
        also = f" and {tenants} tenant{'s' * (tenants != 1)}" if tenants else ""
        lines.append(f"parked: {_jobs(runs, one_a_seed, 'jobs_parked')}{also}{_reasons(one_a_seed)}")
    if any("jain_index" in run.summary and run.summary["jain_index"] is None for run in runs):
        lines.append("no fairness figures: fairness is among tenants of a weight above 0, and no such tenant made progress")
    if _sum(runs, "jobs_unfinished"):
        lines.append(f"unfinished: {_jobs(runs, one_a_seed, 'jobs_unfinished')} at max_rounds")
    if _sum(runs, "jobs_withdrawn"):
        lines.append(f"withdrawn: {_jobs(runs, one_a_seed, 'jobs_withdrawn')}, with tenants that left")
    return lines


def solver_failures(runs: Sequence[StoredRun]) -> str:
    """`the solver failed in 36 of 36 rounds (36 replaced by an equal split)`; "" where it never did."""
    counts = {"an equal split": _sum(runs, "solver_fallbacks"), "the last good answer": _sum(runs, "solver_kept")}
    said = ", ".join(f"{count} replaced by {what}" for what, count in counts.items() if count)
    return f"the solver failed in {sum(counts.values())} of {_sum(runs, 'rounds')} rounds ({said})" if said else ""


def fidelity(runs: Sequence[StoredRun]) -> str:
    """How far the simulator's prediction is from measured `runs`: the mean over a system's seeds, then the median over the systems; ""
    where nothing was predicted."""
    said: list[str] = []
    for what, name in _PREDICTED.items():
        errors = [[run.summary[name] for run in group if run.summary.get(name) is not None] for _, group in _by_label(runs)]
        if any(errors):
            off = median(fmean(of_system) for of_system in errors if of_system)
            said.append(f"{what} {'off ' * (not said)}by {100 * off:.1f} %")
    return f"simulator fed with this machine's profile: {', '.join(said)} (median over policies)" if said else ""


def why_invalid(runs: Sequence[StoredRun]) -> str:
    """Which systems made seeds invalid, and why, from the runs whose summary says `valid: false`."""
    groups = _by_label([run for run in runs if run.summary.get("valid") is False])
    return "; ".join(f"{label}: {solver_failures(group) or 'its runs failed their own checks'}" for label, group in groups)


def _jobs(runs: Sequence[StoredRun], one_a_seed: Sequence[StoredRun], name: str) -> str:
    """`14 of 240 jobs`; where the systems of a seed differ, `Gavel 14 of 240 jobs, OEF 12 of 240 jobs`."""
    of_seed = {run.summary["seed"]: _sum([run], name) for run in one_a_seed}
    if all(_sum([run], name) == of_seed[run.summary["seed"]] for run in runs):
        return f"{_sum(one_a_seed, name)} of {_sum(one_a_seed, *_ALL_JOBS)} jobs"
    return ", ".join(f"{label} {_sum(group, name)} of {_sum(group, *_ALL_JOBS)} jobs" for label, group in _by_label(runs))


def _reasons(runs: Iterable[StoredRun]) -> str:
    """The most frequent reasons of parked jobs and tenants with their counts, in brackets; each reason up to its first semicolon."""
    try:
        counts = Counter(str(row["reason"]).partition(";")[0] for run in runs for row in run.parked_rows())
    except EngineError as error:
        return f" (reasons unknown: {error})"
    said = [f"{reason}: {count}" for reason, count in counts.most_common(_REASONS)]
    others = counts.total() - sum(count for _, count in counts.most_common(_REASONS))
    return f" ({'; '.join([*said, *([f'other reasons: {others}'] if others else [])])})" if said else ""


def _sum(runs: Iterable[StoredRun], *names: str) -> int:
    return sum(int(run.summary.get(name) or 0) for run in runs for name in names)


def _by_label(runs: Iterable[StoredRun]) -> list[tuple[str, list[StoredRun]]]:
    groups: dict[str, list[StoredRun]] = {}
    for run in sorted(runs, key=lambda run: run.system):
        groups.setdefault(run.label, []).append(run)
    return list(groups.items())
