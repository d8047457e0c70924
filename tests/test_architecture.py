"""The rules of the house, read off the source: who imports whom, what starts without torch, how big a file
may get.
"""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "adiabat"

# Which rooms a room may import beside itself. Imports point down: a room stands below every room that has it
# in its row.
BELOW_JOBS = {
    "config",
    "core",
    "data",
    "losses",
    "models",
    "results",
    "runs",
    "scaling_laws",
    "store",
    "training",
}
ROOMS: dict[str, set[str]] = {
    "core": set(),
    "losses": set(),
    "config": {"core", "losses"},
    "scaling_laws": {"core"},
    "results": {"core", "scaling_laws"},
    "stats": {"core", "results"},
    "data": {"config", "core"},
    "report": {"core", "results", "scaling_laws"},
    "runs": {"config", "core", "report", "results", "stats"},
    "models": {"config", "core", "data", "results", "runs"},
    "store": {"config", "core", "data", "models", "results", "stats"},
    "datasets": {"config", "core", "data"},
    "profiling": {"config", "core", "data", "models", "report", "results"},
    "training": {"config", "core", "data", "models", "results", "runs", "scaling_laws"},
    "evaluation": {"config", "core", "data", "models", "results", "runs", "stats", "store"},
    "mining": {"config", "core", "data", "models", "runs", "store"},
    "adiabatic": {*BELOW_JOBS, "evaluation", "stats"},
    "dual_encoder": BELOW_JOBS,
    "distillation": {*BELOW_JOBS, "datasets", "dual_encoder", "evaluation", "stats"},
    "experiments": {*BELOW_JOBS, "adiabatic", "dual_encoder", "evaluation", "stats"},
    "exporting": {
        *("adiabatic", "config", "core", "data", "models", "report", "results", "runs", "stats", "store"),
    },
    "serving": {
        *(
            "adiabatic",
            "config",
            "core",
            "data",
            "evaluation",
            "exporting",
            "models",
            "results",
            "runs",
            "store",
        ),
    },
    "upgrading": {"config", "core", "data", "results", "runs", "store"},
}
ROOMS["api"] = set(ROOMS)
ROOMS["cli"] = {"api", "config", "core", "profiling", "report", "results"}
ROOMS["__init__"] = {"api", "config", "core", "models", "store"}
ROOMS["__main__"] = {"cli"}
# Imports that still point up, each to be cut.
UPWARD: set[tuple[str, str]] = set()

# These must be quick to import, or must run where torch is not installed.
WITHOUT_TORCH = (
    "__init__",
    "__main__",
    *("adiabatic.drift", "adiabatic.probes", "cli", "config", "core", "data", "datasets"),
    *("evaluation.space_geometry", "profiling", "report", "results", "scaling_laws", "stats"),
)
SLOW_PACKAGES = {"sentence_transformers", "torch", "transformers"}
# Arithmetic on arrays and nothing else.
NUMPY_ONLY = {
    "adiabatic.drift": {"jaxtyping", "numpy"},
    "stats.ranking_measures": {"ir_measures", "jaxtyping", "numpy"},
    **{
        f"stats.{name}": {"jaxtyping", "numpy", "scipy"}
        for name in ("paired", "resampling", "samples", "significance", "statistics")
    },
}

NAMES_THAT_SAY_NOTHING = {"base", "common", "helper", "helpers", "misc", "util", "utils"}
# Put together here, so that this file does not trip over itself.
PATHS_OF_ONE_MACHINE = re.compile(
    "|".join(rf"(?<![\w.])/{folder}/" for folder in ("work", "root", "home", "Users"))
)
TEXT_FILES = (
    "src/**/*",
    "docs/**/*",
    "tests/**/*",
    "examples/*",
    "benchmarks/*",
    "scripts/*",
    "requirements/*",
    "*.md",
    "Makefile",
    "*.toml",
    ".ci/*",
)
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


@cache
def trees() -> dict[str, ast.Module]:
    return {
        name: ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for name, path in MODULES.items()
    }


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


@cache
def imports() -> list[Import]:
    """Every import, read by the first test that asks: each process of a test run loads this file."""
    return [
        Import(importer, target, getattr(node, "lineno", 0), runs)
        for importer, tree in trees().items()
        for node, runs in nodes(tree)
        for target in targets(node, importer)
    ]


def within() -> list[Import]:
    return [one for one in imports() if one.target.split(".")[0] == "adiabat"]


def foreign() -> list[Import]:
    return [one for one in imports() if one.target.split(".")[0] not in {"adiabat", *sys.stdlib_module_names}]


def covers(name: str, module: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def room_of(module: str) -> str:
    parts = [part for part in module.split(".") if part != "adiabat"]
    return parts[0] if parts else "__init__"


def is_allowed(one: Import) -> bool:
    room, target = room_of(one.importer), room_of(one.target)
    return target == room or target in ROOMS[room] or target == "__init__"


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def text_files() -> Iterator[Path]:
    for pattern in TEXT_FILES:
        yield from (
            path for path in sorted(ROOT.glob(pattern)) if path.is_file() and path.suffix in TEXT_SUFFIXES
        )


def test_the_reader_of_imports_sees_through_functions_and_relative_names() -> None:
    lines = [
        "import torch",
        "from . import samples",
        "from ..core.errors import DataError",
        "def f():",
        "    import numpy",
    ]
    code = "\n".join([*lines, "if TYPE_CHECKING:", "    import scipy"])
    seen = [
        (target, runs) for node, runs in nodes(ast.parse(code)) for target in targets(node, "stats.paired")
    ]
    assert seen == [
        ("torch", True),
        ("adiabat.stats.samples", True),
        ("adiabat.core.errors", True),
        ("numpy", False),
        ("scipy", False),
    ]


def test_imports_point_one_way() -> None:
    assert len(within()) > len(MODULES)
    upward = {(one.importer, one.target.removeprefix("adiabat.")) for one in within() if not is_allowed(one)}
    assert sorted(upward - UPWARD) == []
    assert sorted(UPWARD - upward) == [], "these are cut, and must leave the list"


LOADED_BY_ROOM = """
import importlib, sys
import adiabat

def rooms():
    return {name.split(".")[1] for name in sys.modules if name.startswith("adiabat.")}

for line in sys.stdin.read().splitlines():
    room, *modules = line.split()
    before = rooms()
    for module in modules:
        importlib.import_module("adiabat." + module)
    print(room, *sorted(rooms() - before - {room}))
"""


def test_loading_a_room_loads_no_room_above_it() -> None:
    """Rooms are loaded bottom up in one process, and `sys.modules` shows what each loads, in whatever way."""
    rooms = sorted((room for room in ROOMS if not room.startswith("__")), key=lambda room: len(below(room)))
    modules = {room: [name for name in MODULES if room_of(name) == room] for room in rooms}
    lines = "\n".join(" ".join([room, *modules[room]]) for room in rooms)
    code = [sys.executable, "-W", "ignore", "-c", LOADED_BY_ROOM]
    done = subprocess.run(code, input=lines, capture_output=True, text=True, timeout=300, check=True)
    loaded = {room: set(others) for room, *others in map(str.split, done.stdout.splitlines())}
    assert loaded.keys() == set(rooms), done.stderr
    assert {room: others - below(room) for room, others in loaded.items()} == {room: set() for room in rooms}


def below(room: str) -> set[str]:
    """The rooms that a room imports, and those that these import."""
    return ROOMS[room].union(*(below(lower) for lower in ROOMS[room]))


def test_the_table_of_imports_has_every_room_and_no_circle() -> None:
    assert set(ROOMS) == {room_of(name) for name in MODULES}
    left = dict(ROOMS)
    while lowest := [room for room, below in left.items() if not below & left.keys()]:
        for room in lowest:
            del left[room]
    assert left == {}


def test_no_room_has_the_name_of_a_public_function() -> None:
    rooms = {path.stem if path.is_file() else path.name for path in SOURCE.iterdir()}
    assert sorted(rooms & set(importlib.import_module("adiabat").__all__)) == []


def test_nothing_that_starts_without_torch_imports_it_at_module_level() -> None:
    quick = [
        one
        for one in foreign()
        if one.at_module_level and any(covers(name, one.importer) for name in WITHOUT_TORCH)
    ]
    assert [str(one) for one in quick if one.target.split(".")[0] in SLOW_PACKAGES] == []


@pytest.mark.parametrize("module", sorted(NUMPY_ONLY))
def test_metrics_and_significance_need_numpy_and_scipy_alone(module: str) -> None:
    found = {one.target.split(".")[0] for one in foreign() if one.importer == module}
    assert found <= NUMPY_ONLY[module]


@pytest.mark.parametrize(
    "module",
    ["config", "data.examples", "stats.ranking_measures", "stats.significance", "report.evaluation_page"],
)
def test_a_quick_module_leaves_torch_unloaded(module: str) -> None:
    done = run_python(
        f"import sys, adiabat, adiabat.{module}; sys.exit('torch was imported' "
        "if 'torch' in sys.modules else 0)"
    )
    assert done.returncode == 0, done.stderr


def test_all_of_stats_loads_numpy_alone() -> None:
    """At run time: neither pydantic, which reads records, nor scipy, which is imported where it is used."""
    modules = [f"adiabat.{name}" for name in trees() if name.startswith("stats.")]
    done = run_python(
        f"import sys, {', '.join(modules)}; "
        "print({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    )
    assert done.returncode == 0, done.stderr
    loaded = ast.literal_eval(done.stdout)
    assert {"adiabat", "numpy", "jaxtyping"} <= loaded
    assert not loaded & {"pydantic", "scipy", "torch", "ir_measures", "rich", "typer"}


def test_messages_name_options_by_the_functions_that_know_the_door() -> None:
    flags = [
        f"{name} (line {node.lineno}): {node.value}"
        for name, tree in trees().items()
        if name.split(".")[0] != "cli" and name != "core.wording"
        for node in texts_of(tree)
        if re.search(r"(?<![\w-])--[a-z]", node.value)
    ]
    # Flags of another program, and a property of a style sheet.
    others = ("training.distributed", "report.chart_style")
    assert [flag for flag in flags if not flag.startswith(others)] == [], "use option() of core/wording.py"


def texts_of(tree: ast.Module) -> Iterator[ast.Constant]:
    """Texts of the code, without docstrings."""
    standing_alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in standing_alone:
            yield node


def test_every_public_name_can_be_imported() -> None:
    package = importlib.import_module("adiabat")
    assert package.__all__
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
NAME_AND_FILE = re.compile(r"`([A-Za-z_.]+)`(?: there)?\s+(?:\(|in |\(in )`([a-z_/0-9]+\.py)`")
DOCUMENTS = {
    path.name: path.read_text(encoding="utf-8")
    for path in (
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs" / "decisions").glob("*.md"),
    )
}


def test_documents_name_what_stands_in_the_file_that_they_give() -> None:
    named = [
        (document, *pair) for document, text in DOCUMENTS.items() for pair in NAME_AND_FILE.findall(text)
    ]
    assert len(named) > 50

    def stands(name: str, file: str) -> bool:
        paths = [folder / file for folder in (SOURCE, ROOT) if (folder / file).is_file()]
        return any(name.rpartition(".")[2] in path.read_text(encoding="utf-8") for path in paths)

    assert [(document, name, file) for document, name, file in named if not stands(name, file)] == []


def test_every_name_in_a_document_is_one_of_the_code_or_a_path() -> None:
    texts = [path.read_text(encoding="utf-8") for path in text_files() if path.suffix in {".py", ".toml"}]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    names = {(document, name) for document, text in DOCUMENTS.items() for name in NAME.findall(text)}
    assert len(names) > 150
    unknown = [
        (document, name)
        for document, name in sorted(names)
        if not set(filter(None, name.split("."))) <= words and not (ROOT / name).exists()
    ]
    assert unknown == []


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, tree in trees().items() if not ast.get_docstring(tree)] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [name for name in MODULES if NAMES_THAT_SAY_NOTHING & set(name.split("."))] == []


def test_no_two_modules_have_one_name() -> None:
    names = [path.stem for path in MODULES.values() if path.stem != "__init__"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


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


@pytest.mark.parametrize(
    "name", ["lock.txt", "torch.txt", "torch-cpu.txt", "uv.txt", "integrations.txt", "oldest.txt"]
)
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
    assert [
        name
        for name in [*torch, *uv]
        if name in lock and version(lock[name]) != version({**torch, **uv}[name])
    ] == []
    # They lie beside the packages of the lock, of which none must be there twice.
    assert pins("integrations.txt").keys() & {*lock, *torch, *uv} == set()


# Handlers of any exception; one of the system's errors alone may be about making a folder.
BROAD = {"ArrowException", "BaseException", "Exception", "ImportError", "RuntimeError"}
JUDGES = {"disk_error_of", "is_out_of_memory", "reraise_unrelated", "shortage_of"}
# The command line judges in `_ending`, trials in `_failure`; a link or a home directory that cannot be found
# is none, nor a mixed setting. What fails while texts are embedded is the answer to those who asked.
JUDGED_ELSEWHERE = {
    ("cli.app", "main"),
    ("core.surroundings", "_cache_home"),
    ("experiments.trials", "make"),
    ("models.st_modules", "_module"),
    ("serving.batching", "_run"),
    ("store.scoring", "_full_precision"),
}


def names_in(nodes: Iterator[ast.AST]) -> set[str]:
    found = (getattr(node, "id", getattr(node, "attr", "")) for node in nodes)
    return {name for name in found if name}


def broad_handlers() -> Iterator[tuple[str, str, ast.ExceptHandler]]:
    for module, tree in trees().items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            for handler in ast.walk(function):
                if (
                    isinstance(handler, ast.ExceptHandler)
                    and handler.type
                    and names_in(ast.walk(handler.type)) & BROAD
                ):
                    yield module, function.name, handler


def test_a_handler_of_any_exception_asks_whether_a_resource_is_wanting() -> None:
    handlers = [*broad_handlers()]
    assert len(handlers) > 20
    unjudged = []
    for module, function, handler in handlers:
        cleans_up = isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None
        calls = (node.func for node in ast.walk(handler) if isinstance(node, ast.Call))
        if not cleans_up and not names_in(calls) & JUDGES and (module, function) not in JUDGED_ELSEWHERE:
            unjudged.append(f"{module}.{function}:{handler.lineno}")
    assert unjudged == []


def test_every_search_says_on_which_device_it_runs() -> None:
    """A search without a device runs on a CPU: beside a GPU nobody would notice."""
    silent = []
    for module, tree in trees().items():
        if module == "store.search":
            continue
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        searching = {alias.name for node in imports for alias in node.names} & {
            "search",
            "count_at_least",
            "DenseRanker",
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in searching:
                stated = {keyword.arg for keyword in node.keywords}
                if "device" not in stated and len(node.args) < 4:
                    silent.append(f"{module}:{node.lineno}")
    assert silent == []


def test_dependencies_are_declared_and_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def normal(name: str) -> str:
        return re.split(r"[=<>!~ ;\[]", name, maxsplit=1)[0].lower().replace("_", "-")

    core = {normal(line) for line in project["dependencies"]}
    extra = {normal(line) for lines in project["optional-dependencies"].values() for line in lines}
    distributions = packages_distributions()
    imported = {
        normal(found)
        for one in foreign()
        for found in distributions.get(one.target.split(".")[0], [one.target])
    }
    assert imported - core - extra == set()
    assert core - imported == set()
