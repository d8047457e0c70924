"""Measure the shape of the package beside its goals: tokens, density, explanation, names, functions.

    python scripts/shape.py [--package DIRECTORY] [--modules]

The first table has one row for each room, the second one row for each measure of the whole. `--package`
measures another copy of the package, such as that of an earlier commit. `--modules` runs `adiabat tune` and
`adiabat search` on tiny data, and counts the modules of adiabat that each has loaded at its end.
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[1]

TOKENS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
"""Kinds of tokens that are code; docstrings are among the strings."""

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

VAGUE = """
alike anew asked begun done drawn every found given gone got held here kept left made meant most named one
ones own part parts picked place places rest said seen shown some taken there thing things told wanted way
what where whole
"""
"""Names that do not say what they stand for."""

COUNT_AT_EXIT = """
import atexit, os, sys
def count(*start):
    return sum(tuple(name.split(".")[: len(start)]) == start for name in sys.modules)
atexit.register(lambda: print("modules", count("adiabat"), count("adiabat", "report"), file=sys.stderr))
from adiabat.cli import main
main()
"""

Row = tuple[str, ...]


def is_docstring(node: ast.AST) -> bool:
    """A string that stands alone: of a module, class or function, or below an attribute."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@dataclass(frozen=True)
class Source:
    """A file of Python: its path below its folder, its text, and the tree of its syntax."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The folder below the package; ``-`` for the package's own modules."""
        return self.path.parts[0] if len(self.path.parts) > 1 else "-"

    @cached_property
    def lines(self) -> Sequence[str]:
        """The lines of the text."""
        return self.text.splitlines()

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def tokens(self) -> Sequence[tokenize.TokenInfo]:
        """All tokens, comments among them."""
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    @cached_property
    def docstring_lines(self) -> set[int]:
        """Numbers of the lines of docstrings."""
        docstrings = [node for node in self.nodes if is_docstring(node)]
        return {line for node in docstrings for line in lines_of(node)}

    @property
    def comments(self) -> int:
        """Lines with a comment, those for tools left out."""
        comments = [token.string for token in self.tokens if token.type == tokenize.COMMENT]
        return sum(not comment.startswith(("# noqa", "# type:", "# fmt:")) for comment in comments)

    def function_lengths(self) -> Iterator[tuple[int, str]]:
        """Lines of each function without docstrings and blank ones, and where it is."""
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = set(lines_of(node)) - self.docstring_lines
                code = [line for line in lines if self.lines[line - 1].strip()]
                yield len(code), f"{self.path}:{node.name}"

    def assigned_names(self) -> Iterator[str]:
        """Targets of assignments and loops, and arguments, once each time."""
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id.strip("_")
            elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
                yield node.arg.strip("_")


def lines_of(node: ast.AST) -> range:
    """Numbers of the lines of a statement."""
    assert isinstance(node, ast.stmt)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def read(folder: Path) -> list[Source]:
    """Every file of Python below a folder."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    return [Source(path.relative_to(folder), text, ast.parse(text)) for path, text in texts.items()]


@dataclass(frozen=True)
class Density:
    """Counts of some files, from which follows how dense their statements are, and how well explained."""

    files: int
    lines: int
    tokens: int
    docstring_lines: int
    comments: int
    statements: int
    simple_statements: int
    expressions: int
    conditional_expressions: int
    comprehensions: int
    nested_comprehensions: int
    lambdas: int

    def cells(self) -> Iterator[tuple[str, str, str]]:
        """Name, value and goal of each measure."""

        def each_thousand(count: int) -> str:
            return f"{1000 * count / max(self.statements, 1):.1f}"

        yield "files", f"{self.files}", "-"
        yield "lines", f"{self.lines:,}", "-"
        yield "tokens", f"{self.tokens:,}", "-"
        yield "expressions", f"{self.expressions / max(self.simple_statements, 1):.1f}", "<= 7.5"
        yield "conditional", each_thousand(self.conditional_expressions), "-"
        yield "comprehensions", each_thousand(self.comprehensions), "-"
        yield "nested", each_thousand(self.nested_comprehensions), "<= 5"
        yield "lambdas", each_thousand(self.lambdas), "<= 4"
        yield "docstrings", share(self.docstring_lines, self.lines), "18 to 22 %"
        yield "comments", share(self.comments, self.lines), ">= 2 %"


def density_of(sources: Iterable[Source]) -> Density:
    """Count some files.

    Expressions are counted in simple statements: those without a body of their own, docstrings left out. A
    comprehension is nested if it has two ``for``, or if another one stands in it.
    """
    sources = list(sources)
    nodes = [node for source in sources for node in source.nodes]
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    simple = [node for node in statements if not hasattr(node, "body") and not is_docstring(node)]
    comprehensions = [node for node in nodes if isinstance(node, COMPREHENSIONS)]
    return Density(
        files=len(sources),
        lines=sum(len(source.lines) for source in sources),
        tokens=sum(token.type in TOKENS for source in sources for token in source.tokens),
        docstring_lines=sum(len(source.docstring_lines) for source in sources),
        comments=sum(source.comments for source in sources),
        statements=len(statements),
        simple_statements=len(simple),
        expressions=sum(isinstance(inner, ast.expr) for node in simple for inner in ast.walk(node)),
        conditional_expressions=sum(isinstance(node, ast.IfExp) for node in nodes),
        comprehensions=len(comprehensions),
        nested_comprehensions=sum(is_nested(node) for node in comprehensions),
        lambdas=sum(isinstance(node, ast.Lambda) for node in nodes),
    )


def is_nested(comprehension: ast.AST) -> bool:
    """Whether a comprehension has two ``for``, or holds another one."""
    return sum(isinstance(node, ast.comprehension) for node in ast.walk(comprehension)) > 1


def share(part: int, whole: int) -> str:
    """In percent."""
    return f"{100 * part / max(whole, 1):.1f} %"


def rooms(package: Sequence[Source]) -> Iterator[Row]:
    """One row for each room, that with the most tokens first, then all rooms together, and the goals."""
    densities = {}
    for room in {source.room for source in package}:
        densities[room] = density_of(source for source in package if source.room == room)
    total = density_of(package)
    yield ("room", *(name for name, _, _ in total.cells()))
    for room in sorted(densities, key=lambda room: -densities[room].tokens):
        yield (room, *(value for _, value, _ in densities[room].cells()))
    yield ("all", *(value for _, value, _ in total.cells()))
    yield ("goal", *(goal for _, _, goal in total.cells()))


def whole(package: Sequence[Source], tests: Sequence[Source]) -> Iterator[Row]:
    """Rows of measure, value and goal."""
    total = density_of(package)
    yield "measure", "now", "goal"
    yield "tokens of code", f"{total.tokens:,}", "<= 447,000"
    yield "lines", f"{total.lines:,}", "<= 62,000"
    yield "expressions a simple statement", f"{total.expressions / total.simple_statements:.2f}", "<= 7.0"
    over = sum(len(line) > 100 for source in package for line in source.lines)
    yield (
        "tokens a line; lines over 100 columns",
        f"{total.tokens / total.lines:.1f}; {share(over, total.lines)}",
        "-",
    )
    yield "settings declared in config", f"{settings(package)}", "<= 450"
    assigned = Counter(name for source in package for name in source.assigned_names())
    vague = Counter({name: count for name, count in assigned.items() if name in VAGUE.split()})
    examples = ", ".join(f"{name} {count}" for name, count in vague.most_common(5))
    yield (
        "vague names among those assigned",
        f"{share(vague.total(), assigned.total())} ({examples})",
        "<= 2.5 %",
    )
    functions = sorted(length for source in package for length in source.function_lengths())
    lengths = [length for length, _ in functions]
    ninth = quantiles(lengths, n=10)[-1]
    longest, place = functions[-1]
    yield "function code lines: median; 90th percentile", f"{median(lengths):g}; {ninth:g}", "-"
    yield "longest function", f"{longest} ({place})", "-"
    yield (
        "lines of tests a line of source",
        f"{sum(len(source.lines) for source in tests) / total.lines:.2f}",
        "0.8",
    )


def settings(package: Sequence[Source]) -> int:
    """Keys that the classes of room `config` declare; a key that many verbs share counts once.

    Classes with a decorator are dataclasses of the reader, and no tables of settings.
    """
    classes = [
        node
        for source in package
        if source.room == "config"
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and not node.decorator_list
    ]
    declared = 0
    for node in classes:
        for line in node.body:
            declares = isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
            declared += declares and "ClassVar" not in ast.unparse(line)
    return declared


def modules_loaded() -> Iterator[Row]:
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


def print_table(rows: Iterable[Row]) -> None:
    """Print rows in columns of equal width."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print(" | ".join(cells).rstrip())


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", type=Path, default=ROOT / "src" / "adiabat", help="the package's folder")
    parser.add_argument("--modules", action="store_true", help="count the modules that verbs load, too")
    options = parser.parse_args()
    package = read(options.package)
    print_table(rooms(package))
    print()
    tests = read(options.package.parents[1] / "tests")
    loaded = modules_loaded() if options.modules else ()
    print_table([*whole(package, tests), *loaded])


if __name__ == "__main__":
    main()
