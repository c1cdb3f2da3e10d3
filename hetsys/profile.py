"""`hetsys profile`: measures this machine's own devices, says how much faster one kind is than another, and keeps it as a calibration."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, Any

from hetsys.core import calibration as files
from hetsys.core import host
from hetsys.core.calibration import Calibration, JobRow, OpRow
from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError
from hetsys.models.jobs.names import FAMILY_NAMES
from hetsys.runtime.launch import Launcher
from hetsys.runtime.profiler import Bench, Seat, Stretch

if TYPE_CHECKING:
    from rich.console import Console

PROGRAMS = tuple(f"{family}/full" for family in FAMILY_NAMES)
TOLERANCE = 0.10
"""How far the ratio of two kinds may differ between the two passes; beyond it the machine is too unsteady to be measured on."""
PASSES = 2
_QUIET = 0.95
_AGAIN = "the machine is busy with something else, or too warm: profile it again"


@dataclass(frozen=True)
class Effort:
    """How long to measure: `turns` stretches of `stretch_s` a program and pass, `op_s` an operation and pass, restarts of each program."""

    turns: int = len(PROGRAMS)
    stretch_s: float = 0.25
    op_s: float = 0.04
    restarts: int = 1
    quick: bool = False


QUICK = Effort(turns=3, stretch_s=0.15, op_s=0.01, restarts=1, quick=True)


class TrainingJobs:
    """Opens training jobs for the workers of a bench (`runtime.profiler.Jobs`)."""

    def open(self, program: str, device: str, rank: int, world_size: int) -> Any:
        from hetsys.models.jobs.trainer import Trainer

        return Trainer(program, 0, rank, world_size, device)

    def join(self, device: str, rank: int, world_size: int, rendezvous: str) -> None:
        from hetsys.models.jobs import gang

        gang.join(rank, world_size, rendezvous, device)

    def leave(self) -> None:
        from hetsys.models.jobs import gang

        gang.leave()


@dataclass
class Samples:
    """What was measured. `rates[program, kind][pass]`: steps/s of one device in each stretch; `quiet`: wall
    speed as a part of what the CPU time would have allowed; `ops`: (seconds, sd, n) a pass and device; `restarts`: seconds."""

    rates: dict[tuple[str, str], list[list[float]]] = field(default_factory=dict)
    quiet: list[float] = field(default_factory=list)
    ops: dict[tuple[str, Any, str], list[tuple[float, float, int]]] = field(default_factory=dict)
    restarts: dict[str, list[float]] = field(default_factory=dict)
    gangs: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)

    def steps_per_s(self, program: str, kind: str) -> float:
        return fmean(rate for passed in self.rates[program, kind] for rate in passed)

    def ratios(self, program: str, slow: str, fast: str) -> tuple[float, ...]:
        """How many times faster `fast` trains `program`, once a pass, over the same neighbours in each."""
        return tuple(fmean(fasts) / fmean(slows) for slows, fasts in zip(self.rates[program, slow], self.rates[program, fast], strict=True))

    def difference(self, program: str, cluster: Cluster) -> float:
        """By what part the ratio of the fastest to the slowest kind differed between the two passes; 0 for one kind."""
        slow, fast = cluster.kinds[0], cluster.kinds[-1]
        first, second = self.ratios(program, slow, fast)
        return abs(second / first - 1)


def main(cluster: Cluster, cluster_name: str, results: Path, console: Console, quick: bool = False) -> int:
    """Measure, print the tables, keep the calibration. Returns 0, or 1 where two passes disagree by more than TOLERANCE."""
    samples, path = _measure_and_keep(cluster, cluster_name, results, console, QUICK if quick else Effort())
    good = _print_speeds(samples, cluster, console)
    _print_gangs(samples, console)
    _print_ops(samples, console)
    for kind, times in samples.restarts.items():
        console.print(f"restart on {kind}: {median(times):.2f} s to a process, its checkpoint and its first step", soft_wrap=True)
    _say_if_busy(samples, console)
    console.print(f"calibration: {path}", soft_wrap=True)
    return 0 if good else 1


def calibrate(cluster: Cluster, cluster_name: str, results: Path, console: Console, quick: bool = False) -> Path:
    """Measure without tables, as a native run needs it where no calibration fits; a line says where two passes disagree, or the machine is
    busy. Returns the file."""
    samples, path = _measure_and_keep(cluster, cluster_name, results, console, QUICK if quick else Effort())
    unsteady = [program for program in dict.fromkeys(name for name, _ in samples.rates) if samples.difference(program, cluster) > TOLERANCE]
    if unsteady:
        console.print(f"two passes differ by more than {100 * TOLERANCE:.0f} % for {', '.join(unsteady)}: {_AGAIN}", soft_wrap=True)
    _say_if_busy(samples, console)
    return path


def _measure_and_keep(cluster: Cluster, name: str, results: Path, console: Console, effort: Effort) -> tuple[Samples, Path]:
    if not cluster.native:
        remedy = "its devices are not here: only cluster=local and clusters of this machine's CPU generations can be measured"
        raise ConfigError("cluster", name, remedy)
    seconds = len(PROGRAMS) * PASSES * effort.turns * effort.stretch_s + (10 if effort.quick else 20)
    console.print(f"measuring {len(cluster.devices)} devices of this machine ({name}): about {seconds:.0f} s", soft_wrap=True)
    began = time.perf_counter()
    with _launcher() as launcher:
        samples = measure(cluster, launcher, PROGRAMS, effort)
    path = files.write(_calibration(samples, cluster, name), results)
    console.print(f"measured in {time.perf_counter() - began:.0f} s")
    return samples, path


def _say_if_busy(samples: Samples, console: Console) -> None:
    if samples.quiet and median(samples.quiet) < _QUIET:
        busy = f"{100 * (1 - median(samples.quiet)):.0f} %"
        note = f"note: the workers had to wait for {busy} of the time: this machine is busy with something else, and runs will wait as well"
        console.print(note, soft_wrap=True)


@contextmanager
def _launcher() -> Iterator[Launcher]:
    from hetsys.runtime.local import LocalLauncher

    launcher = LocalLauncher()
    try:
        yield launcher
    finally:
        launcher.close()


def measure(cluster: Cluster, launcher: Launcher, programs: Sequence[str], effort: Effort) -> Samples:
    """Everything about `cluster`, all its devices busy at once. In each pass the programs take turns, `effort.turns` times round."""
    samples = Samples()
    with Bench.of(cluster, launcher, TrainingJobs()) as bench:
        for program in programs:
            bench.open(program)
        for _ in range(PASSES):
            _add_pass(samples, bench, programs, effort)
            _add_ops(samples, bench, effort)
        for program in [*programs] * effort.restarts:
            for kind, seconds in bench.restarts(program).items():
                step_s = 1 / samples.steps_per_s(program, kind)
                samples.restarts.setdefault(kind, []).append(max(0.0, seconds - step_s))
        _add_gangs(samples, bench, cluster, programs, effort)
    return samples


def _add_pass(samples: Samples, bench: Bench, programs: Sequence[str], effort: Effort) -> None:
    """Each worker trains each program once a turn, and from turn to turn beside another one on the other workers: what shares a processor
    slows each other down, by much or little, and a run has all sorts of neighbours."""
    for program in programs:
        for kind in dict.fromkeys(seat.kind for seat in bench.seats):
            samples.rates.setdefault((program, kind), []).append([])
    for turn in range(effort.turns):
        for first in range(len(programs)):
            side_by_side = [programs[(first + turn * place) % len(programs)] for place in range(len(bench.seats))]
            stretches = bench.train(side_by_side, effort.stretch_s)
            for program, seat, stretch in zip(side_by_side, bench.seats, stretches, strict=True):
                samples.rates[program, seat.kind][-1].append(stretch.steps_per_s(seat))
                samples.quiet += _quiet(seat, stretch)


def _quiet(seat: Seat, stretch: Stretch) -> list[float]:
    return [stretch.steps / stretch.wall_s / stretch.steps_per_s(seat)] if seat.native.startswith("cpu") else []


def _add_ops(samples: Samples, bench: Bench, effort: Effort) -> None:
    for seat, timed in zip(bench.seats, bench.time_ops(effort.op_s, effort.quick), strict=True):
        for one in timed:
            samples.ops.setdefault((seat.kind, one.op, one.shape), []).append((one.seconds, one.sd, one.n))


def _add_gangs(samples: Samples, bench: Bench, cluster: Cluster, programs: Sequence[str], effort: Effort) -> None:
    rates = {program: {kind: samples.steps_per_s(program, kind) for kind in cluster.kinds} for program in programs}
    for size in (2, 4):
        if size > max(cluster.num_devices_by_kind.values()):
            return
        for (program, kind), stretches in bench.train_gangs(size, rates, effort.stretch_s, effort.turns).items():
            samples.gangs[program, kind, size] = [stretch.steps / stretch.wall_s for stretch in stretches]


def _calibration(samples: Samples, cluster: Cluster, name: str) -> Calibration:
    from hetsys.tracking.env import code_version

    singles = {(program, kind, 1): [r for passed in passes for r in passed] for (program, kind), passes in samples.rates.items()}
    return Calibration(
        cluster=name,
        devices=dict(cluster.num_devices_by_kind),
        busy_fraction={kind: cluster.sheets[kind].busy_fraction for kind in cluster.kinds},
        ops=[_op_row(kind, op, shape, seen) for (kind, op, shape), seen in samples.ops.items()],
        jobs=[_job_row(*key, rates) for key, rates in (singles | samples.gangs).items()],
        restart_s={kind: median(times) for kind, times in samples.restarts.items()},
        host=host.facts(),
        torch=host.torch_build().version,
        commit=str(code_version()["commit"]),
        command=" ".join(["hetsys", *sys.argv[1:]]),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _op_row(kind: str, op: Any, shape: str, seen: Sequence[tuple[float, float, int]]) -> OpRow:
    seconds, spread = median(one[0] for one in seen), max(one[1] for one in seen)
    n = sum(one[2] for one in seen)
    return OpRow(kind, op.kind, op.dtype, shape, op.rows, op.kv_tokens, op.num_bytes, op.flops, seconds, spread, n)


def _job_row(program: str, kind: str, gang: int, rates: Sequence[float]) -> JobRow:
    return JobRow(program, kind, gang, fmean(rates), pstdev(rates) / fmean(rates), len(rates))


def _print_speeds(samples: Samples, cluster: Cluster, console: Console) -> bool:
    """The table of training speeds; whether every ratio came out the same twice."""
    slow, fast = cluster.kinds[0], cluster.kinds[-1]
    several = slow != fast
    ratios = ["ratio", "pass 1", "pass 2", "differ by", "verdict"] if several else []
    table = _table("Training, optimiser steps per second of one device", ["program"], [*cluster.kinds, *ratios])
    good = True
    for program in dict.fromkeys(program for program, _ in samples.rates):
        speeds = {kind: samples.steps_per_s(program, kind) for kind in cluster.kinds}
        cells = [f"{speed:.1f}" for speed in speeds.values()]
        if several:
            first, second = samples.ratios(program, slow, fast)
            difference = samples.difference(program, cluster)
            good = good and difference <= TOLERANCE
            verdict = "steady" if difference <= TOLERANCE else "UNSTEADY"
            cells += [f"{speeds[fast] / speeds[slow]:.2f}", f"{first:.2f}", f"{second:.2f}", f"{100 * difference:.1f} %", verdict]
        table.add_row(program, *cells)
    console.print(table)
    if several:
        judged = "all within" if good else "some beyond"
        console.print(f"ratio: {fast} to {slow}, measured twice; {judged} the {100 * TOLERANCE:.0f} % by which two measurements may differ")
    if not good:
        console.print(_AGAIN)
    return good


def _print_gangs(samples: Samples, console: Console) -> None:
    if not samples.gangs:
        return
    table = _table("Gangs, steps per second, and against as many devices alone", ["program", "kind"], ["devices", "steps/s", "of ideal"])
    for (program, kind, size), rates in samples.gangs.items():
        ideal = samples.steps_per_s(program, kind) * size
        table.add_row(program, kind, str(size), f"{median(rates):.1f}", f"{100 * median(rates) / ideal:.0f} %")
    console.print(table)


def _print_ops(samples: Samples, console: Console) -> None:
    table = _table("Operations, the largest of each", ["kind", "operation", "dtype", "shape"], ["rows", "GFLOP/s", "GB/s"])
    largest: dict[tuple[str, str, str], tuple[Any, str]] = {}
    for kind, op, shape in samples.ops:
        before = largest.get((kind, op.kind, op.dtype))
        if before is None or op.num_bytes >= before[0].num_bytes:
            largest[kind, op.kind, op.dtype] = (op, shape)
    for (kind, name, dtype), (op, shape) in largest.items():
        seconds = median(one[0] for one in samples.ops[kind, op, shape])
        flops = [f"{op.rows:g}", f"{op.flops / seconds / 1e9:.1f}"] if op.flops else ["", ""]
        table.add_row(kind, name, dtype if op.flops else "", shape, *flops, f"{op.num_bytes / seconds / 1e9:.1f}")
    console.print(table)


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in words:
        table.add_column(column)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table
