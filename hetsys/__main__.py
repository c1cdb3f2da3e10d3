"""The command line, `hetsys` = `python -m hetsys`: calls the room that does the work and turns errors into exit codes."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hetsys.core.errors import ConfigError, HetsysError, InfeasiblePlan, check_choice
from hetsys.core.paths import results_dir

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130
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
    from hetsys.config import check_composes
    from hetsys.config.arguments import parse_arguments, show
    from hetsys.runner.command import run_command

    if parse_arguments(argv).shows:
        check_composes(argv)
        show(argv)
        return OK
    return run_command(argv, _console())


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


def _explain(arguments: argparse.Namespace) -> int:
    from hetsys.report.explain import main as explain

    return explain(arguments.run, arguments.results, tenant=arguments.tenant, round_index=arguments.round, fmt=arguments.format)


def _compare(arguments: argparse.Namespace) -> int:
    from hetsys.report import agreement
    from hetsys.report.compare import main as compare
    from hetsys.runner import rerun

    if arguments.same:
        return agreement.main(arguments.paths)
    return compare(arguments, rerun)


def _figures(arguments: argparse.Namespace) -> int:
    from hetsys.report.figures import main as figures

    out = arguments.out or arguments.results / "figures"
    return figures(arguments.names, arguments.list, arguments.results, out, arguments.frame)


def _doctor(arguments: argparse.Namespace) -> int:
    from hetsys.doctor import main as doctor

    return doctor()


def _profile(arguments: argparse.Namespace) -> int:
    from hetsys.config import compose_cluster
    from hetsys.profile import main as profile
    from hetsys.runtime.devices import check_busy

    cluster = compose_cluster(arguments.cluster)
    check_busy(cluster)
    return profile(cluster, arguments.cluster, arguments.results, _console(), arguments.quick)


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
    for name in ("show", "explain", "replay"):
        parsers[name].add_argument("run", metavar="RUN", help="a run's folder, or enough of its path to be unique")
    parsers["explain"].add_argument("--tenant", metavar="NAME", help="one tenant: shares, prices, envy, rounds (default: a line for each)")
    parsers["explain"].add_argument("--round", type=int, metavar="N", help="that round alone (default: means over the run)")
    parsers["explain"].add_argument("--format", choices=("table", "json"), default="table")
    compare = parsers["compare"]
    compare.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="experiments or runs (default: every result)")
    compare.add_argument("--baseline", metavar="SYSTEM", help="the system that the others are compared with")
    compare.add_argument("--metric", action="append", metavar="NAME", help="a name of summary.json; may be repeated")
    compare.add_argument("--any-commit", action="store_true", help="let runs of several commits share the table, which then says so")
    compare.add_argument("--format", choices=("table", "csv", "json", "markdown"), default="table")
    compare.add_argument("--aa", action="store_true", help="run the baseline again and compare it with itself: the noise floor")
    compare.add_argument("--same", action="store_true", help="whether the runs of two PATHs (emulated, simulated) are equal to the bit")
    profile = parsers["profile"]
    profile.add_argument("cluster", nargs="?", default="cpu_generations", metavar="CLUSTER", help="default: cpu_generations; or local")
    profile.add_argument("--quick", action="store_true", help="a coarser measurement in a quarter of the time")
    figures = parsers["figures"]
    figures.add_argument("names", nargs="*", metavar="NAME", help="figures to draw (default: those whose results are here)")
    figures.add_argument("--list", action="store_true", help="claim, command, minutes and direction of each figure; draw none")
    figures.add_argument("--out", type=Path, metavar="PATH", help="where pictures go (default: figures/ in the results folder)")
    parsers["fetch"].add_argument("names", nargs="*", metavar="NAME", help="data sets to download (default: all)")
    parsers["fetch"].add_argument("--list", action="store_true", help="address, licence, size, SHA-256 of each; download none")
    for name in ("compare", "figures"):
        parsers[name].add_argument("--frame", metavar="HASH", help="only runs of this frame (the first digits do); `hetsys ls` lists them")
    for name in ("ls", "show", "explain", "replay", "compare", "figures", "profile"):
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
    "explain": (
        "why a tenant of a stored run got what it got: shares, alternatives, prices, envy, rounds",
        _explain,
        (
            "hetsys explain results/oef_mix/oef_coop/0-1a2b3c4d5e",
            "hetsys explain oef_mix/oef_coop/0- --tenant tenant-03",
            "hetsys explain oef_mix/oef_coop/0- --tenant tenant-03 --round 12",
            "hetsys explain oef_mix/oef_coop/0- --format json",
        ),
    ),
    "compare": (
        "stored runs, paired by seed: ratio to the baseline with its confidence interval",
        _compare,
        (
            "hetsys compare",
            "hetsys compare results/oef_mix --baseline gavel",
            "hetsys compare --metric jct_mean_s --metric envy_max --format markdown",
            "hetsys compare --same results/oef_live results/oef_live_sim",
        ),
    ),
    "figures": (
        "draw figures from stored results: PNG, SVG and a CSV of the points",
        _figures,
        ("hetsys figures --list", "hetsys figures", "hetsys figures --out /tmp/pictures"),
    ),
    "doctor": ("what this machine has, and what runs on it natively, emulated or simulated", _doctor, ("hetsys doctor",)),
    "profile": (
        "measure this machine's own devices: training speeds, operations, restarts; native runs read them",
        _profile,
        ("hetsys profile", "hetsys profile local", "hetsys profile cpu_generations --quick"),
    ),
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
