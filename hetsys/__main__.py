"""The command line, `hetsys` = `python -m hetsys`: calls the room that does the work and turns errors into exit codes."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hetsys.core.errors import ConfigError, HetsysError, InfeasiblePlan, check_choice
from hetsys.core.paths import results_dir

if TYPE_CHECKING:
    from rich.console import Console

    from hetsys.config import Sweep
    from hetsys.core.experiment import Experiment
    from hetsys.runner import SweepResult

OK, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130
_REASONS = 10
LISTS = ("systems", "clusters", "devices", "tables", "models", "workloads", "experiments", "figures")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0: done, 1: a run failed, 2: the user's mistake (one line on stderr), 130: interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _dispatch(words)
    except (ConfigError, InfeasiblePlan) as mistake:
        print("hetsys: " + " ".join(str(mistake).split()), file=sys.stderr)
        return MISTAKE
    except HetsysError as failure:
        print(f"hetsys: {failure}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("hetsys: interrupted; the same command takes up where it stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return OK
    except OSError as error:
        print(f"hetsys: {error}", file=sys.stderr)
        return FAILED
    finally:
        signal.signal(signal.SIGTERM, previous)


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["run"]:
        return _run(words[1:])
    if words and not words[0].startswith("-"):
        check_choice("command", words[0], COMMANDS)
    arguments = _parser().parse_args(words or ["--help"])
    command: Callable[[argparse.Namespace], int] = arguments.command
    return command(arguments)


def _interrupt(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _run(argv: Sequence[str]) -> int:
    from hetsys.config import check_composes, compose_experiments
    from hetsys.config.arguments import parse_arguments, show

    if parse_arguments(argv).shows:
        check_composes(argv)
        show(argv)
        return OK
    sweep = compose_experiments(argv)
    return _plan(sweep) if sweep.plan_only else _execute(sweep)


def _plan(sweep: Sweep) -> int:
    from hetsys.runner import plan_sweep

    console = _console()
    _say([*sweep.remarks, *sweep.notices], console)
    plan_sweep(sweep.experiments, console)
    return OK


def _execute(sweep: Sweep) -> int:
    """Run the sweep; then say what failed, print the table with the source of its numbers, and where results and figures lie."""
    from hetsys.config import launch_with_hydra
    from hetsys.report.compare import closing_table
    from hetsys.runner import run_sweep

    console = _console()
    _say([*sweep.remarks, *sweep.notices], console)

    def launch(todo: list[Experiment], function: Callable[[Experiment], str | None]) -> list[str | None]:
        return launch_with_hydra(replace(sweep, experiments=todo), function)

    result = run_sweep(sweep.experiments, console=console, launch=None if sweep.launcher == "basic" else launch)
    for line in _failures(result.failed):
        print(f"hetsys: failed: {line}", file=sys.stderr)
    done = [*result.finished, *result.skipped]
    results = sweep.experiments[0].results
    if result.skipped and not result.interrupted:
        console.print(_skipped(result, sweep.experiments[0].resume), soft_wrap=True)
    if done:
        closing_table(done, sweep.baseline, console, sweep.experiments[0].resume == "any")
        _say(sweep.notices, console)
        console.print(f"results: {_shown(results / sweep.name)}", soft_wrap=True)
    if done and not result.interrupted:
        _draw(sweep.name, results, console)
    if result.interrupted:
        raise KeyboardInterrupt
    return FAILED if result.failed else OK


def _say(notices: Sequence[str], console: Console) -> None:
    for notice in notices:
        console.print(notice, soft_wrap=True, markup=False, highlight=False)


def _failures(failed: Sequence[tuple[Path, str]]) -> list[str]:
    """One line for each reason, the most frequent first; reasons that differ only in the run's own folder are one."""
    groups: dict[str, list[tuple[Path, str]]] = {}
    for path, reason in failed:
        groups.setdefault(reason.replace(str(path), ""), []).append((path, " ".join(reason.split())))
    ranked = sorted(groups.values(), key=len, reverse=True)
    lines = []
    for group in ranked[:_REASONS]:
        path, reason = group[0]
        lines.append(f"{_shown(path)}: {reason}" if len(group) == 1 else f"{len(group)} runs, for example {_shown(path)}: {reason}")
    others = sum(map(len, ranked[_REASONS:]))
    return lines + ([f"{others} more runs, for other reasons; `hetsys show RUN` says why"] if others else [])


def _skipped(result: SweepResult, resume: str) -> str:
    total = len(result.finished) + len(result.skipped) + len(result.failed)
    stood = "stood finished at this commit" if resume == "commit" else "stood finished"
    if len(result.skipped) == total:
        return f"{f'all {total} runs' if total > 1 else 'the one run'} {stood}; nothing was run"
    return f"{len(result.skipped)} of {total} runs {stood} and were left alone"


def _draw(name: str, results: Path, console: Console) -> None:
    """The figures of the experiment; none of them is worth failing for when every run is done."""
    from hetsys.report.figures import draw_for

    try:
        for path in draw_for(name, results, results / "figures"):
            console.print(f"figure: {_shown(path)}", soft_wrap=True)
    except OSError as error:
        print(f"hetsys: figure not drawn: {error}", file=sys.stderr)


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _console() -> Console:
    from rich.console import Console

    return Console()


def _list(arguments: argparse.Namespace) -> int:
    from hetsys.list_options import print_option, print_options

    if arguments.what == "figures":
        from hetsys.report.figures import main as figures

        return figures([arguments.name] if arguments.name else [], True, results_dir(), results_dir() / "figures")
    if arguments.name:
        print_option(arguments.what, arguments.name)
    else:
        print_options(arguments.what)
    return OK


def _ls(arguments: argparse.Namespace) -> int:
    from hetsys.tracking.views import ls_main

    return ls_main(arguments.filter, arguments.results)


def _show(arguments: argparse.Namespace) -> int:
    from hetsys.tracking.views import show_main

    return show_main(arguments.run, arguments.results)


def _compare(arguments: argparse.Namespace) -> int:
    from hetsys.report.compare import main as compare
    from hetsys.runner import rerun

    return compare(arguments, rerun)


def _figures(arguments: argparse.Namespace) -> int:
    from hetsys.report.figures import main as figures

    out = arguments.out or arguments.results / "figures"
    return figures(arguments.names, arguments.list, arguments.results, out, arguments.frame)


def _doctor(arguments: argparse.Namespace) -> int:
    from hetsys.doctor import main as doctor

    return doctor()


def _replay(arguments: argparse.Namespace) -> int:
    from hetsys.runner import replay
    from hetsys.tracking.views import one_run

    console = _console()
    run = one_run(arguments.run, arguments.results, console)
    if run is None:
        return MISTAKE
    return OK if replay(run.path, console) else FAILED


def _fetch(arguments: argparse.Namespace) -> int:
    from hetsys.workloads.fetch import main as fetch

    return fetch(arguments.names, arguments.list)


class _Parser(argparse.ArgumentParser):
    """Says a mistake in one line, like every other mistake."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError("command", self.prog, f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hetsys",
        description="Compare systems for large language models on mixed GPU clusters: same engine, same trace, same cost model.",
        epilog="Begin with: hetsys run\nThen: hetsys run --help, hetsys COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, (summary, _, examples) in COMMANDS.items():
        commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog="examples:\n" + "\n".join(f"  {line}" for line in examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        ).set_defaults(command=COMMANDS[name][1])
    _add_arguments(commands.choices)
    return parser


def _add_arguments(parsers: Mapping[str, argparse.ArgumentParser]) -> None:
    parsers["list"].add_argument("what", choices=LISTS, help="what to list")
    parsers["list"].add_argument("name", nargs="?", metavar="NAME", help="one of them, in full: its paper, and what we had to choose")
    parsers["ls"].add_argument("filter", nargs="?", metavar="FILTER", help="experiment, system, seed or any part of a run's path")
    for name in ("show", "replay"):
        parsers[name].add_argument("run", metavar="RUN", help="a run's folder, or enough of its path to be unique")
    compare = parsers["compare"]
    compare.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="experiments or runs (default: every result)")
    compare.add_argument("--baseline", metavar="SYSTEM", help="the system that the others are compared with")
    compare.add_argument("--metric", action="append", metavar="NAME", help="a name of summary.json; may be repeated")
    compare.add_argument("--any-commit", action="store_true", help="let runs of several commits share the table, which then says so")
    compare.add_argument("--format", choices=("table", "csv", "json", "markdown"), default="table")
    compare.add_argument("--aa", action="store_true", help="run the baseline again and compare it with itself: the noise floor")
    figures = parsers["figures"]
    figures.add_argument("names", nargs="*", metavar="NAME", help="figures to draw (default: those whose results are here)")
    figures.add_argument("--list", action="store_true", help="claim, command, minutes and direction of each figure; draw none")
    figures.add_argument("--out", type=Path, metavar="PATH", help="where pictures go (default: figures/ in the results folder)")
    parsers["fetch"].add_argument("names", nargs="*", metavar="NAME", help="data sets to download (default: all)")
    parsers["fetch"].add_argument("--list", action="store_true", help="address, licence, size, SHA-256 of each; download none")
    for name in ("compare", "figures"):
        parsers[name].add_argument("--frame", metavar="HASH", help="only runs of this frame (the first digits do); `hetsys ls` lists them")
    for name in ("ls", "show", "replay", "compare", "figures"):
        parsers[name].add_argument(
            "--results", type=Path, default=results_dir(), metavar="PATH", help="default: HETSYS_RESULTS or ./results"
        )


COMMANDS: dict[str, tuple[str, Callable[..., int], tuple[str, ...]]] = {
    "run": ("compare systems: compose, check, run, print the table", _run, ("hetsys run --help",)),
    "list": (
        "what there is: systems, clusters, devices, cost tables, models, workloads, presets, figures",
        _list,
        ("hetsys list systems", "hetsys list systems oef_coop", "hetsys list experiments", "hetsys list devices"),
    ),
    "ls": ("stored runs, one line each", _ls, ("hetsys ls", "hetsys ls oef_mix", "hetsys ls gavel")),
    "show": (
        "one stored run: its summary, plan and environment",
        _show,
        ("hetsys show results/oef_mix/gavel/0-1a2b3c4d5e", "hetsys show gavel/0-1a"),
    ),
    "compare": (
        "stored runs, paired by seed: ratio to the baseline with its confidence interval",
        _compare,
        (
            "hetsys compare",
            "hetsys compare results/oef_mix --baseline gavel",
            "hetsys compare --metric jct_mean_s --metric envy_max --format markdown",
        ),
    ),
    "figures": (
        "draw figures from stored results: PNG, SVG and a CSV of the points",
        _figures,
        ("hetsys figures --list", "hetsys figures", "hetsys figures --out /tmp/pictures"),
    ),
    "doctor": ("what this machine has, and what runs on it natively, emulated or simulated", _doctor, ("hetsys doctor",)),
    "replay": (
        "run a stored run again from its own configuration and say what differs",
        _replay,
        ("hetsys replay results/oef_mix/gavel/0-1a2b3c4d5e", "hetsys replay oef_mix/gavel/0-"),
    ),
    "fetch": (
        "public data: download, verify and place it under HETSYS_DATA",
        _fetch,
        ("hetsys fetch --list", "HETSYS_DATA=~/data hetsys fetch NAME"),
    ),
}


if __name__ == "__main__":
    sys.exit(main())
