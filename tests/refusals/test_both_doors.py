"""One refusal through both doors: flags and capitals on the command line, keywords and names of arguments in
Python.
"""

import inspect
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import adiabat
from adiabat.core.errors import AdiabatError
from tests.commands import Run
from tests.commands import run as run
from tests.refusals.world import write_mistakes


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    write_mistakes(here)
    return here


# A command, and what its message must hold there and in Python.
REFUSED: list[tuple[str, str, str]] = [
    ("embed no-such/model corpus.jsonl --out new", "MODEL must", "model must"),
    ("embed model model --out new", "CORPUS must", "corpus must"),
    ("embed model corpus.jsonl --out notes", "another --out", "another out"),
    ("embed model other.jsonl --out store", "another --out", "another out"),
    ("tune store model pairs.jsonl --out new", "STORE must", "store must"),
    (
        "tune model nowhere pairs.jsonl --out new",
        "adiabat embed MODEL CORPUS --out nowhere",
        'adiabat.embed(model, corpus, out="nowhere")',
    ),
    ("tune model store pairs.jsonl --out notes", "--out must", "out must"),
    ("tune model store pairs.jsonl --out job", "--resume", "resume=True"),
    ("evaluate model store pairs.jsonl --out job", "--out", "out must"),
    ("evaluate model store pairs.jsonl --retain store pairs.jsonl --out new", "--retain must", "retain must"),
    ("evaluate model store pairs.jsonl --run model --out new", "--run must", "runs must"),
    ("evaluate model store pairs.jsonl --run small --power --out new", "--power", "power is"),
    (
        "evaluate model store pairs.jsonl --baseline-store store --out new",
        "--baseline-store must come with --baseline",
        "baseline_stores must come with baseline",
    ),
    (
        "evaluate model store pairs.jsonl --baseline small --out new",
        "embed small CORPUS --out DIR and add --baseline-store DIR",
        'adiabat.embed("small", corpus, out="DIR") and add baseline_stores=["DIR"]',
    ),
    ("evaluate model --suite mteb-eigt --out new", "--suite must", "suite must"),
    (
        "space model store pairs.jsonl --baseline-store store --out new",
        "--baseline-store must come with --baseline",
        "baseline_store must come with baseline",
    ),
    ("search store ' ' --model model", "QUERY must", "query must"),
    ("train run.toml --out notes", "--out must", "out must"),
    ("train no_model.toml --out new", "--set job.model=...", 'settings={"job": {"model": ...}}'),
    ("mine pairs.jsonl corpus.jsonl --out m.txt", "--out must", "out must"),
    (
        "mine pairs.jsonl corpus.jsonl --out m.jsonl --model model",
        "add --source dense",
        'add source="dense"',
    ),
    ("inspect pairs.jsonl --store store", "add --model MODEL", 'add model="MODEL"'),
    ("compare model small --qrels x", "--qrels must", "qrels must"),
    ("plan", "--budget 1e17", "budget=1e17"),
    ("data xkcd run.toml --out new", "KIND must", "kind must"),
    ("data squad run.toml --out notes", "--out must", "out must"),
    (
        "distill pair small model --out new",
        "--set distill.width=projection",
        'settings={"distill": {"width": "projection"}}',
    ),
    ("distill static model --out notes", "--out must", "out must"),
    ("distill fit --teacher model --student model --out new", "add --texts", "add texts"),
    ("distill multilingual --teacher model --student model --out new", "add --parallel", "add parallel"),
    ("safe-rate model store pairs.jsonl --out job", "--out must", "out must"),
    ("advise model store pairs.jsonl --out job", "--out must", "out must"),
]
LISTS = {"run": "runs", "baseline_store": "baseline_stores"}
"""Options of `evaluate` that may be repeated, and the arguments that take them as a list."""


def call(command: str) -> object:
    """Call the function of a verb with what its command line names."""
    verb, *words = shlex.split(command)
    if verb == "distill":
        verb = f"distill_{words.pop(0)}"
    given: list[str] = []
    options: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        name = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--"):
            given.append(word)
        elif name == "power":
            options["power"] = True
        elif name == "retain":
            options["retain"] = [(words.pop(0), words.pop(0))]
        elif verb == "evaluate" and name in LISTS:
            options[LISTS[name]] = [words.pop(0)]
        else:
            options["teachers" if name == "teacher" else name] = words.pop(0)
    if "suite" in options:
        return adiabat.evaluate_suite(given, **options)
    if verb == "train":
        return adiabat.train(settings=given[0], **options)
    return getattr(adiabat, {"data": "make"}.get(verb, verb.replace("-", "_")))(*given, **options)


CAPITALS = re.compile(r"\b(MODEL|STORE|DATA|CORPUS|QUERY|KIND) (must|is|comes)\b|adiabat [a-z-]+ [A-Z-]")
FLAG, KEYWORD = re.compile(r"(?<![\w-])--[a-z]"), re.compile(r"(?<![.\w])([a-z_]+)=(?=[\"\[{T\d])")


@pytest.mark.parametrize(("command", "typed", "python"), REFUSED, ids=[command for command, *_ in REFUSED])
def test_a_refusal_speaks_the_words_of_its_door(run: Run, command: str, typed: str, python: str) -> None:
    said = run(*shlex.split(command))
    assert said.code == 2, said.err
    assert typed in said.err
    assert not re.search(r"\b\w+=True|settings=\{|adiabat\.\w+\(", said.err)
    with pytest.raises((AdiabatError, ValueError)) as caught:
        call(command)
    told = str(caught.value)
    assert python in told
    assert not FLAG.search(told)
    assert not CAPITALS.search(told)
    assert set(KEYWORD.findall(told)) - known_keywords() == set()


@cache
def known_keywords() -> set[str]:
    """Arguments of the public functions, and the settings that are keywords of some."""
    names = ("embed", "tune", "train", "evaluate", "space", "inspect", "plan", "mine")
    functions = [getattr(adiabat, name) for name in names]
    return {
        "source",
        "budget",
        *(name for function in functions for name in inspect.signature(function).parameters),
    }
