"""The sweeps of one command: the preset that it names and, where nothing typed changes what is run, the presets that belong beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hetsys.config.arguments import parse_arguments
from hetsys.config.compose import Sweep, compose_experiments
from hetsys.core import host
from hetsys.core.errors import ConfigError, NotMeasured

_NEUTRAL = re.compile(r"(experiment|tracker|launch|resume)[.=].*")
"""Words that change where and how runs are kept, not what is run: they hold for the presets beside as well."""


def compose_command(argv: Sequence[str]) -> list[Sweep]:
    """All that `hetsys run ARGV` means, in the order in which it runs: what belongs beside the preset, then the preset itself.

    Nothing has started or been written when this returns. A preset beside it that this machine cannot run is left out, and a remark
    says why. Raises as `compose_experiments` does, for the preset itself, and NotMeasured for any of them.
    """
    main = compose_experiments(argv)
    changing = [word for word in parse_arguments(argv).overrides if not _NEUTRAL.fullmatch(word)]
    if not main.beside:
        return [main]
    if changing:
        left_out = " and ".join(f"experiment={name}" for name in main.beside)
        return [_remarked(main, f"{main.name} alone, because of {changing[0]}; without it {left_out} would run beside it")]
    shared = [word for word in argv if not word.startswith("experiment=")]
    sweeps = []
    for name in main.beside:
        try:
            sweeps.append(_on_its_gpus(compose_experiments([*shared, f"experiment={name}"])))
        except NotMeasured:
            raise
        except ConfigError as mistake:
            main = _remarked(main, f"left out, as this machine cannot run it: experiment={name}: {mistake}")
    return [*sweeps, main]


def _on_its_gpus(sweep: Sweep) -> Sweep:
    """A preset of this machine's own devices takes its GPUs where it has some, in place of the generations of its processor."""
    if not sweep.experiments[0].cluster.native or not (host.torch_build().cuda and host.gpus()):
        return sweep
    return compose_experiments([*sweep.argv, "cluster=local"])


def _remarked(sweep: Sweep, line: str) -> Sweep:
    return replace(sweep, remarks=(*sweep.remarks, line))
