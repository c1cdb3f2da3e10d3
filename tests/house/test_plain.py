"""The plain-language checks: short files and functions, a sentence above every module, no loose ends, no place outside."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIP = {".git", ".venv", "build", "dist", "results", "figures", "wandb", "outputs", "multirun", "__pycache__"}
TEXT = {".py", ".md", ".yaml", ".yml", ".toml", ".cff", ".sh", ".in", ""}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60

LOOSE_ENDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
ABSOLUTE = re.compile(r"(?<![\w./:<>~])/(home|root|work|workspace|mnt|opt|srv|Users)/")
INSTALL_HOSTS = re.compile(r"py" r"pi\.org|python" r"hosted")
RELATIVE = re.compile(r"(?:\.\./)+[A-Za-z_]\w*")


def texts() -> Iterator[Path]:
    """Every text file of the project itself."""
    for path in sorted(ROOT.rglob("*")):
        inside = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part not in (".ci", ".gitignore") for part in inside)
        if path.is_file() and path.suffix in TEXT and not hidden and not SKIP & set(inside) and "egg-info" not in str(path):
            yield path


def sources() -> list[Path]:
    return sorted(path for room in ("hetsys", "paper_figs", "benchmarks") for path in (ROOT / room).rglob("*.py"))


def language_faults(path: Path, text: str) -> list[str]:
    """What one file says that it should not: a loose end, or a place outside the project."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        faults = [pattern.search(line) for pattern in (LOOSE_ENDS, ABSOLUTE, INSTALL_HOSTS)]
        outside = [m for m in RELATIVE.finditer(line) if not (path.parent / m.group()).resolve().is_relative_to(ROOT)]
        found += [f"{path.relative_to(ROOT)}:{number}: {match.group()}" for match in [*faults, *outside] if match]
    return found


def size_faults(path: Path, text: str) -> list[str]:
    """A missing module docstring, a file or a function that is too long."""
    tree, name = ast.parse(text), path.relative_to(ROOT)
    found = [] if not text.strip() or ast.get_docstring(tree) else [f"{name}: no module docstring"]
    if (lines := len(text.splitlines())) > MAX_FILE_LINES:
        found.append(f"{name}: {lines} lines")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            found += [f"{name}:{node.lineno}: {node.name} has {length} lines"] if length > MAX_FUNCTION_LINES else []
    return found


def test_no_file_has_a_loose_end_or_names_a_place_outside() -> None:
    files = list(texts())
    assert len(files) > 50
    assert [fault for path in files for fault in language_faults(path, path.read_text())] == []


def test_files_and_functions_are_short_and_explained() -> None:
    assert [fault for path in sources() for fault in size_faults(path, path.read_text())] == []


@pytest.mark.parametrize(
    "line",
    ["# TO" "DO later", "x = 1  # FIX" "ME", "open('/ho" "me/x.csv')", "see ../.." "/../other/file", "https://py" "pi.org/simple"],
)
def test_a_language_fault_is_caught(line: str) -> None:
    assert len(language_faults(ROOT / "hetsys" / "x.py", line)) == 1


@pytest.mark.parametrize("line", ["see ../README.md", "a/home/b", "https://arxiv.org/abs/2403.18545", "todos = []"])
def test_plain_lines_pass(line: str) -> None:
    assert language_faults(ROOT / "hetsys" / "x.py", line) == []


def test_a_size_fault_is_caught() -> None:
    long_function = '"""Doc."""\ndef f():\n' + "    x = 1\n" * MAX_FUNCTION_LINES
    assert len(size_faults(ROOT / "x.py", long_function)) == 1
    assert len(size_faults(ROOT / "x.py", "x = 1\n" * (MAX_FILE_LINES + 1))) == 2
    assert size_faults(ROOT / "x.py", '"""Doc."""\n') == size_faults(ROOT / "x.py", "") == []
