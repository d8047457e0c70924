"""Measure the shape of the package beside its goals: lines, docstrings, comments, names, functions, files,
and modules that verbs load.

    python scripts/shape.py [--modules]

`--modules` runs `adiabat tune` and `adiabat search` on tiny data, and counts the modules of adiabat that each
has loaded at its end.
"""

import argparse
import ast
import io
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[1]
COMMENTED = ("training", "store", "losses", "train")
"""Rooms whose code is to be commented; `train` is what `training` and `losses` are made from."""

VAGUE = """
alike anew asked begun done drawn every found given gone got held here kept left made meant most named one
ones own part parts picked place
places rest said seen shown some taken there thing things told wanted way what where whole
"""
"""Names that do not say what they stand for."""

COUNT_AT_EXIT = """
import atexit, os, sys
count = lambda *start: sum(tuple(name.split(".")[: len(start)]) == start for name in sys.modules)
atexit.register(lambda: print("modules", count("adiabat"), count("adiabat", "report"), file=sys.stderr))
from adiabat.cli import main
main()
"""


@dataclass(frozen=True)
class Source:
    """A file of Python: its path below its folder, its lines, and the tree of its syntax."""

    path: Path
    lines: Sequence[str]
    tree: ast.Module

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def docstring_lines(self) -> set[int]:
        """Lines of strings that stand alone: docstrings of modules, classes and functions, and those below
        attributes.
        """
        constants = [
            node.value
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ]
        texts = [node for node in constants if isinstance(node.value, str)]
        return {line for node in texts for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}

    @property
    def comments(self) -> int:
        """Lines with a comment, those for tools left out."""
        tokens = tokenize.generate_tokens(io.StringIO("\n".join(self.lines) + "\n").readline)
        return sum(
            token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:"))
            for token in tokens
        )

    def function_lengths(self) -> Iterator[tuple[int, str]]:
        """Lines of each function without docstrings and blank ones, and where it is."""
        docstrings = self.docstring_lines
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                code = [line for line in lines if line not in docstrings and self.lines[line - 1].strip()]
                yield len(code), f"{self.path}:{node.name}"

    def assigned_names(self) -> Iterator[str]:
        """Targets of assignments and loops, and arguments, once each time."""
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id.strip("_")
            elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
                yield node.arg.strip("_")


def read(folder: Path) -> list[Source]:
    """Every file of Python below a folder."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    return [
        Source(path.relative_to(folder), text.splitlines(), ast.parse(text)) for path, text in texts.items()
    ]


def shape(package: Sequence[Source], tests: Sequence[Source]) -> Iterator[tuple[str, str, str]]:
    """Rows of measure, value and goal."""
    lines = sum(len(source.lines) for source in package)
    yield "lines of src", f"{lines:,}", "<= 42,000"
    yield "files of src", f"{len(package)}", "<= 240"
    yield "docstring lines", _share(sum(len(source.docstring_lines) for source in package), lines), "<= 20 %"
    rooms = [source for source in package if source.path.parts[0] in COMMENTED]
    names = ", ".join(sorted({source.path.parts[0] for source in rooms}))
    yield (
        f"comment lines of {names}",
        _share(sum(source.comments for source in rooms), sum(len(source.lines) for source in rooms)),
        ">= 2 %",
    )
    yield "comment lines", _share(sum(source.comments for source in package), lines), "-"
    assigned = Counter(name for source in package for name in source.assigned_names())
    vague = Counter({name: count for name, count in assigned.items() if name in VAGUE.split()})
    examples = ", ".join(f"{name} {count}" for name, count in vague.most_common(5))
    yield (
        "vague names among those assigned",
        f"{_share(vague.total(), assigned.total())} ({examples})",
        "<= 2 %",
    )
    functions = sorted(length for source in package for length in source.function_lengths())
    lengths = [length for length, _ in functions]
    yield "function code lines, median", f"{median(lengths):g}", "<= 8"
    yield "function code lines, 90th percentile", f"{quantiles(lengths, n=10)[-1]:g}", "<= 24"
    yield "longest function", f"{functions[-1][0]} ({functions[-1][1]})", "<= 60"
    bases = Counter(source.path.name for source in package if not source.path.name.startswith("__"))
    shared = Counter({name: count for name, count in bases.items() if count > 1})
    examples = ", ".join(f"{name} {count}" for name, count in shared.most_common(3))
    yield "files that share a base name", f"{shared.total()} under {len(shared)} names ({examples})", "0"
    yield "lines of tests", f"{sum(len(source.lines) for source in tests):,}", "<= 32,000"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def modules_loaded() -> Iterator[tuple[str, str, str]]:
    """Rows of modules that verbs have loaded at their end."""
    import golden  # It imports torch.

    goals = {"store": None, "tune": 90, "search": 60}
    with tempfile.TemporaryDirectory() as folder:
        golden.write_world(Path(folder))
        for name, goal in goals.items():
            words = [word.replace("OUT", name) for word in golden.JOBS[name].words]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": folder}
            command = [sys.executable, "-c", COUNT_AT_EXIT, *words]
            process = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=True
            )
            modules, of_page = process.stderr.split()[-2:]
            if goal:
                yield (
                    f"modules loaded by adiabat {name}",
                    f"{modules}, {of_page} of them for its page",
                    f"<= {goal}",
                )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--modules", action="store_true", help="count the modules that verbs load, too")
    options = parser.parse_args()
    rows = [("measure", "now", "goal"), *shape(read(ROOT / "src" / "adiabat"), read(ROOT / "tests"))]
    rows += modules_loaded() if options.modules else []
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print(" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
