"""From experiments to finished run folders: one run, a resumable sweep, a plan without execution, a replay."""

from hetsys.runner.again import replay, rerun
from hetsys.runner.machine import check_machine
from hetsys.runner.one import execute
from hetsys.runner.plans import plan_sweep
from hetsys.runner.sweep import Launch, SweepResult, attempt, run_sweep

__all__ = ["Launch", "SweepResult", "attempt", "check_machine", "execute", "plan_sweep", "replay", "rerun", "run_sweep"]
