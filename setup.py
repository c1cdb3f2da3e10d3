"""Puts conf/ and paper_figs/, which lie at the repository's root, inside the wheel as hetsys/conf and hetsys/paper_figs.

All else is in pyproject.toml. Editable installs leave the folders where they are; `hetsys.core.paths` finds them in both places.
"""

from __future__ import annotations

from pathlib import Path
from shutil import copytree, ignore_patterns

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = ("conf", "paper_figs")


class BuildPy(build_py):
    """Copies the two folders, whole, beside the package's modules."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in FOLDERS:
                target = Path(self.build_lib) / "hetsys" / name
                copytree(name, target, dirs_exist_ok=True, ignore=ignore_patterns("__pycache__"))


setup(packages=find_packages(include=["hetsys", "hetsys.*"]), package_dir={"": "."}, cmdclass={"build_py": BuildPy})
