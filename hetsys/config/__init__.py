"""The one door to Hydra: importing it registers a schema for every option of `conf/`, derived from the classes."""

from omegaconf import OmegaConf

from hetsys.config.beside import compose_command
from hetsys.config.build import rebuild_experiment as rebuild
from hetsys.config.compose import Sweep, check_composes, compose_cluster, compose_experiments, launch_with_hydra
from hetsys.config.options import list_options
from hetsys.config.schema import register_folder
from hetsys.config.settings import PARTS, register_settings
from hetsys.core.paths import shipped

__all__ = ["Sweep", "check_composes", "compose_cluster", "compose_command", "compose_experiments", "launch_with_hydra", "rebuild"]

register_settings()
register_folder(shipped("conf"))
OmegaConf.register_new_resolver("hetsys.options", lambda: list_options((*PARTS, "experiment")), replace=True)
