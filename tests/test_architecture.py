"""The rules of the house, read off the source: who imports whom, what starts without torch, how big a file may get."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "adiabat"
LONGEST_FILE = 400

# Who may import what, by the longest name that fits; a room may import itself unless its row is a single module's.
# A module that is not listed belongs to its room; a name on the right covers everything below it.
# Reading and writing of adiabat's own files: what every room that has some goes through.
OWN_FILES = {"errors", "files", "journal", "seals"}
BELOW_TRAINING = {"config", "data", "excerpts", "locks", "measure", "model", "provenance", "store", "watch", *OWN_FILES}
BELOW_THE_DOOR = {
    *BELOW_TRAINING,
    *("api", "compare", "contrastive", "demo", "files", "inspection", "jobs", "makers", "mining", "plan", "report"),
    *("distil", "drift", "study", "suite", "sweep", "tasks", "train", "tune"),
}
THE_DOOR = {*BELOW_THE_DOOR, "__init__", "cli", "console"}
# What is said of numbers is arithmetic on arrays.
STATISTICS = tuple(f"measure.{name}" for name in ("counterparts", "paired", "resampling", "runs", "samples", "significance", "statistics"))
# What reports share knows nothing of the kinds of report, and no kind knows another.
KINDS_OF_REPORT = sorted(path.parent.name for path in (SOURCE / "report").glob("*/__init__.py"))
SHARED_BY_REPORTS = {
    *("errors", "excerpts", "files", *(f"report.{path.stem}" for path in (SOURCE / "report").glob("[!_]*.py"))),
    *("measure.comparison", "measure.results", "measure.samples", "measure.space_results"),
    *("measure.study_results", "measure.suite_results", "measure.safe_rate_results", "measure.safety"),
    # Of plans: what their records hold.
    *("measure.sweep_results", "plan.frontier", "plan.runs"),
}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "excerpts": set(),
    "watch": set(),
    "files": {"errors", "excerpts", "locks"},
    "journal": {"errors", "files"},
    "seals": {"errors", "files"},
    "locks": {"errors"},
    "provenance": set(),
    "config": {"config", "errors"},
    "data": {"data", "excerpts", *OWN_FILES},
    "data.records": {"errors"},
    "data.mixture": {"config", "data", "errors"},
    "model": {"data.records", "model", *OWN_FILES},
    "store": {"data.numbering", "data.ragged", "data.records", "excerpts", "locks", "model", "provenance", "store", "watch", *OWN_FILES},
    "train": {"config", "data", "model", "plan.flops", "store", "train", "watch", *OWN_FILES},
    "measure": BELOW_TRAINING,
    "measure.results": {"errors"},
    "measure.metrics": {"errors"},
    "measure.space_results": {"errors", "measure.results"},
    "measure.study_results": {"errors", "measure.results", "measure.samples"},
    "measure.sweep_results": {"measure.results", "plan"},
    "measure.drift": {"errors", "measure.study_results"},
    "measure.safe_rate_results": {"measure.results"},
    "measure.safety": set(),
    **{module: {"errors", "measure.metrics", "measure.results", *STATISTICS} for module in STATISTICS},
    "measure.samples": {"errors"},
    "tasks": {*BELOW_TRAINING, "report.wording", "tasks"},
    "suite": {*BELOW_TRAINING, "files", "suite", "tasks"},
    "report": SHARED_BY_REPORTS,
    **{f"report.{kind}": {*SHARED_BY_REPORTS, f"report.{kind}"} for kind in KINDS_OF_REPORT},
    "jobs": {
        "data.numbering",
        "data.trained",
        *OWN_FILES,
        "jobs",
        "locks",
        "measure.results",
        "model",
        "report",
        "provenance",
        "store",
        "train.checkpoint",
        "train.limits",
        "train.log",
        "watch",
    },
    "tune": {*BELOW_TRAINING, "drift", "jobs", "plan.flops", "report", "train", "tune"},
    "plan": {"errors", "plan"},
    "contrastive": {*BELOW_TRAINING, "contrastive", "jobs", "plan", "report", "train"},
    "makers": {"config", "data", "locks", "makers", "provenance", "watch", *OWN_FILES},
    "mining": {*BELOW_TRAINING, "files", "mining", "report.wording"},
    "inspection": {"config", "data", "errors", "inspection", "model", "report.wording", "watch"},
    "compare": {*BELOW_TRAINING, "compare", "contrastive", "files", "jobs", "report", "tasks", "train"},
    "drift": {*BELOW_TRAINING, "drift", "tasks"},
    "study": {*BELOW_TRAINING, "contrastive", "drift", "files", "jobs", "report", "study", "suite", "tasks", "train", "tune"},
    "sweep": {*BELOW_TRAINING, "contrastive", "jobs", "plan", "report", "suite", "sweep", "train"},
    "distil": {*BELOW_TRAINING, "contrastive", "distil", "files", "jobs", "makers"},
    "demo": BELOW_THE_DOOR,
    "api": BELOW_THE_DOOR,
    "__init__": BELOW_THE_DOOR,
    "console": {"errors", "excerpts", "watch"},
    "cli": THE_DOOR,
    "__main__": {"cli"},
}

# These must be quick to import, or must run where torch is not installed.
WITHOUT_TORCH = (
    "__init__",
    "__main__",
    "cli",
    "config",
    "console",
    "data",
    "drift.noise",
    "drift.probes",
    "errors",
    "excerpts",
    "files",
    "inspection",
    "makers",
    "measure.drift",
    "measure.metrics",
    "measure.results",
    *STATISTICS,
    *("measure.space", "measure.space_results", "measure.study_results", "measure.suite_results"),
    *("measure.safe_rate_results", "measure.safety"),
    "report",
)
SLOW_PACKAGES = {"sentence_transformers", "torch", "transformers"}
# Arithmetic on arrays and nothing else.
NUMPY_ONLY = {
    "measure.drift": {"jaxtyping", "numpy"},
    "measure.metrics": {"ir_measures", "jaxtyping", "numpy"},
    **{name: {"jaxtyping", "numpy", "scipy"} for name in STATISTICS},
}

NAMES_THAT_SAY_NOTHING = {"base", "common", "helper", "helpers", "misc", "util", "utils"}
# Put together here, so that this file does not trip over itself.
PATHS_OF_ONE_MACHINE = re.compile("|".join(rf"(?<![\w.])/{folder}/" for folder in ("work", "root", "home", "Users")))
TEXT_FILES = ("src/**/*", "tests/**/*", "examples/*", "benchmarks/*", "scripts/*", "requirements/*", "*.md", "Makefile", "*.toml", ".ci/*")
TEXT_SUFFIXES = {".py", ".md", ".txt", ".in", ".toml", ".j2", ".html", ".css", ".js", ".yaml", ""}


@dataclass(frozen=True)
class Import:
    """One import statement's target, with the place it stands in."""

    importer: str
    target: str
    line: int
    at_module_level: bool

    def __str__(self) -> str:
        return f"{self.importer} (line {self.line}) imports {self.target}"


def module_name(path: Path) -> str:
    """Dotted name inside the package: ``train.loop``; a room's ``__init__`` goes by the room's name."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8"), filename=str(path)) for name, path in MODULES.items()}


def nodes(tree: ast.AST, *, at_module_level: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below, with whether importing the module runs it."""
    for child in ast.iter_child_nodes(tree):
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for_types_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        runs = at_module_level and not inside and not for_types_only
        yield child, runs
        yield from nodes(child, at_module_level=runs)


def targets(node: ast.AST, importer: str) -> Iterator[str]:
    """Absolute dotted names that an import statement reaches, modules of the package resolved."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = ["adiabat", *importer.split(".")]
        is_package = MODULES[importer].name == "__init__.py"
        upwards = package[: len(package) - node.level + (1 if is_package and importer != "__init__" else 0)]
        origin = ".".join([*(upwards if node.level else []), *([node.module] if node.module else [])])
        for alias in node.names:
            name = f"{origin}.{alias.name}"
            yield name if name.removeprefix("adiabat.") in MODULES else origin


def imports() -> Iterator[Import]:
    for importer, tree in TREES.items():
        for node, runs in nodes(tree):
            for target in targets(node, importer):
                yield Import(importer, target, getattr(node, "lineno", 0), runs)


IMPORTS = list(imports())
WITHIN = [one for one in IMPORTS if one.target.split(".")[0] == "adiabat"]
FOREIGN = [one for one in IMPORTS if one.target.split(".")[0] not in {"adiabat", *sys.stdlib_module_names}]


def covers(name: str, module: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def row_of(module: str) -> set[str]:
    rows = [name for name in MAY_IMPORT if covers(name, module)]
    assert rows, f"{module} belongs to no room; add its row to MAY_IMPORT"
    return MAY_IMPORT[max(rows, key=len)]


def is_allowed(one: Import) -> bool:
    target = one.target.removeprefix("adiabat").removeprefix(".") or "__init__"
    return any(covers(name, target) for name in row_of(one.importer))


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def text_files() -> Iterator[Path]:
    for pattern in TEXT_FILES:
        yield from (path for path in sorted(ROOT.glob(pattern)) if path.is_file() and path.suffix in TEXT_SUFFIXES)


def test_the_reader_of_imports_sees_through_functions_and_relative_names() -> None:
    lines = ["import torch", "from . import grid", "from ..errors import DataError", "def f():", "    import numpy"]
    code = "\n".join([*lines, "if TYPE_CHECKING:", "    import scipy"])
    seen = [(target, runs) for node, runs in nodes(ast.parse(code)) for target in targets(node, "measure.metrics")]
    assert seen == [
        ("torch", True),
        ("adiabat.measure.grid", True),
        ("adiabat.errors", True),
        ("numpy", False),
        ("scipy", False),
    ]


def test_imports_point_one_way() -> None:
    assert len(WITHIN) > len(MODULES)
    assert [str(one) for one in WITHIN if not is_allowed(one)] == []


def test_the_table_of_imports_names_only_what_exists() -> None:
    named = set(MAY_IMPORT).union(*MAY_IMPORT.values())
    assert sorted(named - set(MODULES)) == []


def test_nothing_that_starts_without_torch_imports_it_at_module_level() -> None:
    quick = [one for one in FOREIGN if one.at_module_level and any(covers(name, one.importer) for name in WITHOUT_TORCH)]
    assert [str(one) for one in quick if one.target.split(".")[0] in SLOW_PACKAGES] == []


@pytest.mark.parametrize("module", sorted(NUMPY_ONLY))
def test_metrics_and_significance_need_numpy_and_scipy_alone(module: str) -> None:
    foreign = {one.target.split(".")[0] for one in FOREIGN if one.importer == module}
    assert foreign <= NUMPY_ONLY[module]


@pytest.mark.parametrize("module", ["config", "data.examples", "measure.metrics", "measure.significance", "report.page"])
def test_a_quick_module_leaves_torch_unloaded(module: str) -> None:
    done = run_python(f"import sys, adiabat, adiabat.{module}; sys.exit('torch was imported' if 'torch' in sys.modules else 0)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "verb",
    [
        "",
        "embed",
        "tune",
        "train",
        "evaluate",
        "search",
        "inspect",
        "mine",
        "compare",
        "compare-runs",
        "space",
        "data",
        "demo",
        "sweep",
        "plan",
    ],
)
def test_help_is_shown_without_loading_torch(verb: str) -> None:
    code = f"""
import sys
sys.argv = ["adiabat", *{verb.split()!r}, "--help"]
from adiabat.cli import main
try:
    code = main()
except SystemExit as stop:
    code = stop.code
sys.exit("torch was imported" if "torch" in sys.modules else code)
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_every_public_name_can_be_imported() -> None:
    package = importlib.import_module("adiabat")
    assert package.__all__
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_no_file_is_too_long_to_read() -> None:
    files = [path for folder in ("src", "tests", "benchmarks", "examples", "scripts") for path in (ROOT / folder).rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [name for name in MODULES if NAMES_THAT_SAY_NOTHING & set(name.split("."))] == []


def test_no_text_holds_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if PATHS_OF_ONE_MACHINE.search(line)
    ]
    assert found == []


def pins(name: str) -> dict[str, str]:
    """Package to everything after its name in a lock file, hashes included."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    return {re.split(r"[=<>!~ ;]", line, maxsplit=1)[0]: line for line in lines}


@pytest.mark.parametrize("name", ["lock.txt", "torch.txt", "torch-cpu.txt", "uv.txt", "integrations.txt"])
def test_a_lock_pins_by_hash_and_names_no_host(name: str) -> None:
    lock = pins(name)
    assert lock
    assert [line for line in lock.values() if "==" not in line or "--hash=sha256:" not in line] == []
    assert "://" not in (ROOT / "requirements" / name).read_text(encoding="utf-8")


def test_the_locks_agree_with_one_another() -> None:
    def version(line: str) -> str:
        return line.split("==")[1].split()[0].removesuffix("+cpu")

    lock, torch, cpu, uv = (pins(name) for name in ("lock.txt", "torch.txt", "torch-cpu.txt", "uv.txt"))
    assert "torch" not in lock
    assert version(cpu["torch"]) == version(torch["torch"])
    assert [name for name in [*torch, *uv] if name in lock and version(lock[name]) != version({**torch, **uv}[name])] == []
    # They lie beside the packages of the lock, of which none must be there twice.
    assert pins("integrations.txt").keys() & {*lock, *torch, *uv} == set()


def test_dependencies_are_declared_and_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def normal(name: str) -> str:
        return re.split(r"[=<>!~ ;\[]", name, maxsplit=1)[0].lower().replace("_", "-")

    core = {normal(line) for line in project["dependencies"]}
    extra = {normal(line) for lines in project["optional-dependencies"].values() for line in lines}
    distributions = packages_distributions()
    imported = {normal(found) for one in FOREIGN for found in distributions.get(one.target.split(".")[0], [one.target])}
    assert imported - core - extra == set()
    assert core - imported == set()
