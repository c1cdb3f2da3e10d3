"""What is offered and what is written about it agree: options and words, tables and sources, commands and README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
COMMANDS = {"run", "list", "ls", "show", "compare", "figures", "doctor", "profile", "replay", "fetch", "explain"}
LATER = {"capacity", "report", "tune", "pack", "serve"}
KNOWLEDGE = {"full_text", "secondary", "abstract", "own"}
DOMAINS = {"scheduling", "serving", "training", "update"}


def options(group: str) -> list[Path]:
    return sorted((CONF / group).glob("*.yaml"))


def about(path: Path) -> dict[str, Any]:
    loaded = yaml.safe_load(path.read_text())
    return dict(loaded.get("about") or {})


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "experiments").rglob("*.md"))]


def test_there_is_something_to_choose_from() -> None:
    assert {"oef_coop", "gavel", "equal_split"} <= {path.stem for path in options("system")}
    assert {"oef", "oef_live", "oef_native", "oef_smoke", "oef_mix", "oef_tenants"} <= {path.stem for path in options("experiment")}


@pytest.mark.parametrize("path", options("system"), ids=lambda path: path.stem)
def test_a_system_says_what_it_is_and_how_well_we_know_it(path: Path) -> None:
    words = about(path)
    assert words["domain"] in DOMAINS and words["knowledge"] in KNOWLEDGE
    assert words["label"] and words["summary"]
    assert words["knowledge"] == "own" or words["paper"]
    assert words["knowledge"] in ("own", "full_text") or words["chosen"], "what the paper leaves unknown is our choice: list it"


@pytest.mark.parametrize("path", [*options("workload"), *options("cluster"), *options("model")], ids=lambda path: path.stem)
def test_other_options_have_a_summary(path: Path) -> None:
    words = about(path)
    assert words["summary"]
    assert path.parent.name != "workload" or words["domain"] in DOMAINS


@pytest.mark.parametrize("path", options("experiment"), ids=lambda path: path.stem)
def test_a_preset_is_named_like_its_file(path: Path) -> None:
    loaded = yaml.safe_load(path.read_text())
    assert path.read_text().startswith("# @package _global_")
    assert loaded["name"] == path.stem and loaded["about"]["minutes"] > 0


def test_every_cited_table_is_in_third_party() -> None:
    text = (ROOT / "THIRD_PARTY.md").read_text()
    tables = [*(CONF / "tables").rglob("*.*"), *(CONF / "cluster" / "device").glob("*.yaml")]
    assert tables
    missing = [str(path.relative_to(ROOT)) for path in sorted(tables) if f"`{path.relative_to(ROOT).as_posix()}`" not in text]
    assert missing == []


def test_third_party_names_only_files_that_exist() -> None:
    named = re.findall(r"`(conf/[\w./-]+)`", (ROOT / "THIRD_PARTY.md").read_text())
    assert named and [name for name in named if not (ROOT / name).exists()] == []


def test_help_shows_the_commands_that_exist_and_no_others() -> None:
    command = [sys.executable, "-m", "hetsys", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    words = set(re.findall(r"^\s+(?:hetsys )?([a-z]+)\b", shown, re.MULTILINE))
    assert words >= COMMANDS and not words & LATER


def test_the_readme_explains_every_command() -> None:
    used = set(re.findall(r"hetsys ([a-z]+)", (ROOT / "README.md").read_text()))
    assert used >= COMMANDS


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_name_only_options_that_exist(path: Path) -> None:
    text = path.read_text()
    for group in ("experiment", "system", "cluster", "workload", "backend", "tracker", "launch"):
        named = {word for found in re.findall(rf"\b{group}=([a-z][\w,]*)", text) for word in found.split(",") if word}
        printed = set(re.findall(rf"^# conf/{group}/(\w+)\.yaml$", text, re.MULTILINE))
        known = {option.stem for option in options(group)} | printed
        assert named <= known, f"{group}: {sorted(named - known)}"
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)\)", text):
        assert (path.parent / target).exists(), f"broken link {target}"
