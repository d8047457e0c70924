"""Nothing but `core.disk` creates, renames or removes files: the rules of its docstring hold for what is
written there alone.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.test_architecture import trees

OWNER = "core.disk"

CHANGING = {
    *("chmod", "hardlink_to", "link_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink"),
    *("write_bytes", "write_text"),
    *("lchmod", "makedirs", "mkfifo", "mknod", "removedirs", "renames", "symlink"),
    *("copy2", "copyfile", "copyfileobj", "copytree", "rmtree"),
}
"""Methods and functions that change what a path leads to, whatever the object is."""
OF_MODULES = {
    "os": {"link", "open", "remove", "replace", "truncate"},
    "shutil": {"copy", "move"},
    "np": {"memmap"},
}
"""Further functions, whose names other objects have too."""
LIBRARIES = {"open_memmap", "output_stream", "save_file", "save_pretrained", "SummaryWriter", "to_parquet"}
"""Functions of libraries that write files by path."""
SAVING = {"save", "savez", "savez_compressed", "to_csv"}
"""Methods that take a path or an open file."""

IN_FRESH_FOLDER = "writes into a folder that was created with its name, or is a temporary one"
EXCEPTIONS = {
    ("api.import_arguments", "to_parquet"): IN_FRESH_FOLDER,
    ("core.files", "os.open"): "opens a folder to lock it",
    ("core.surroundings", "mkdir"): "a folder for this user alone; its kind and owner are checked there",
    ("core.surroundings", "open"): "the null device",
    ("core.surroundings", "os.open"): "the null device",
    ("exporting.adapter_files", "save_file"): IN_FRESH_FOLDER,
    ("exporting.adapter_files", "save_pretrained"): IN_FRESH_FOLDER,
    ("exporting.static_files", "save"): IN_FRESH_FOLDER,
    ("exporting.static_files", "save_file"): IN_FRESH_FOLDER,
    ("mining.mined_file", "output_stream"): "compresses into an open file",
    ("models.bulk", "os.open"): "reads",
    ("models.deltas", "save_file"): IN_FRESH_FOLDER,
    ("models.device", "write_text"): "a counter of the kernel, not a file",
    ("models.saving", "save_pretrained"): IN_FRESH_FOLDER,
    ("models.st_files", "save_file"): IN_FRESH_FOLDER,
    ("models.static", "save"): IN_FRESH_FOLDER,
    ("models.static", "save_file"): IN_FRESH_FOLDER,
    (
        "runs.run_log",
        "SummaryWriter",
    ): "names its files by time, process and host, in a folder that is no link",
    ("store.bm25", "open_memmap"): IN_FRESH_FOLDER,
    ("store.text_vectors", "memmap"): "maps an open file",
    ("store.vector_store", "memmap"): "reads",
    ("store.vector_store", "os.open"): "reads",
    ("training.checkpoint", "save_file"): IN_FRESH_FOLDER,
}


def changes(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Calls that may change a file or folder, by name and line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := change_of(node)):
            yield name, node.lineno


def change_of(call: ast.Call) -> str:
    function = call.func
    name = (
        function.attr
        if isinstance(function, ast.Attribute)
        else function.id
        if isinstance(function, ast.Name)
        else ""
    )
    module = (
        function.value.id
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
        else ""
    )
    if name in OF_MODULES.get(module, ()):
        return f"{module}.{name}" if module == "os" else name
    if isinstance(function, ast.Attribute) and name in CHANGING:
        return name
    if name in LIBRARIES or (name in ("open", "OSFile", "memory_map") and writes(call)):
        return name
    if (
        isinstance(function, ast.Attribute)
        and name in SAVING
        and call.args
        and not isinstance(call.args[0], ast.Name)
    ):
        return name
    # A text's method of this name takes two arguments, a path's takes one.
    if (
        isinstance(function, ast.Attribute)
        and name == "replace"
        and len(call.args) == 1
        and not call.keywords
    ):
        return name
    return ""


def writes(call: ast.Call) -> bool:
    """Whether a file is opened for more than reading."""
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    constants = [
        one.value for argument in given for one in ast.walk(argument) if isinstance(one, ast.Constant)
    ]
    return any(
        isinstance(one, str) and set(one) & set("wax+") and set(one) <= set("rwaxbt+") for one in constants
    )


def test_only_one_module_changes_files_and_folders() -> None:
    found = {
        (module, name): line
        for module, tree in trees().items()
        if module != OWNER
        for name, line in changes(tree)
    }
    unknown = {
        f"{module}:{line} calls {name}"
        for (module, name), line in found.items()
        if (module, name) not in EXCEPTIONS
    }
    assert sorted(unknown) == []
    assert sorted(EXCEPTIONS.keys() - found.keys()) == [], "these are gone, and must leave the list"


@pytest.mark.parametrize(
    "code",
    [
        "path.write_text('a')",
        "path.open('w')",
        "open(path, 'ab')",
        "open(path, mode='x')",
        "path.open('r+b' if known else 'w+b')",
        "os.open(path, flags)",
        "os.replace(a, b)",
        "source.replace(target)",
        "(folder / name).unlink(missing_ok=True)",
        "shutil.rmtree(folder)",
        "shutil.move(a, b)",
        "np.save(folder / 'a.npy', rows)",
        "np.savez(f'{folder}/a', rows=rows)",
        "np.lib.format.open_memmap(path)",
        "encoder.save_pretrained(folder)",
        "pa.OSFile(path, 'wb')",
    ],
)
def test_the_reader_of_changes_sees_them(code: str) -> None:
    assert len(list(changes(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "path.open('rb')",
        "open(path)",
        "text.replace('a', 'b')",
        "replace(row, name=a)",
        "np.save(file, rows)",
        "write_text(text, path)",
    ],
)
def test_the_reader_of_changes_passes_over_what_reads_or_goes_to_the_owner(code: str) -> None:
    assert list(changes(ast.parse(code))) == []
