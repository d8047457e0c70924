"""One refusal through both doors: flags and capitals on the command line, keywords and names of arguments in
Python.
"""

import inspect
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import adiabat
from adiabat.core.errors import AdiabatError
from tests.commands import Run, write_world
from tests.commands import run as run
from tests.tiny import save_tiny

Call = Callable[[], object]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    save_tiny(here / "small", width=16)
    (here / "job").mkdir()
    (here / "job" / "config.toml").write_text("[job]\nmodel = 'model'\n")
    (here / "other.jsonl").write_text('{"_id": "a", "text": "a"}\n')
    (here / "notes").mkdir()
    (here / "notes" / "todo.txt").write_text("x")
    (here / "run.toml").write_text("[job]\nmodel = 'model'\ndata = 'pairs.jsonl'\n")
    (here / "bare.toml").write_text("[job]\ndata = 'pairs.jsonl'\n")
    (here / "sweep.toml").write_text("[job]\nmodel = 'model'\n")
    return here


# A command, the same call, and what each of the two messages must hold.
REFUSALS: list[tuple[str, Call, str, str]] = [
    (
        "tune model store pairs.jsonl --out job",
        lambda: adiabat.tune("model", "store", "pairs.jsonl", "job"),
        "--resume",
        "resume=True",
    ),
    (
        "tune model store pairs.jsonl --out notes",
        lambda: adiabat.tune("model", "store", "pairs.jsonl", "notes"),
        "--out must",
        "out must",
    ),
    (
        "tune store model pairs.jsonl --out new",
        lambda: adiabat.tune("store", "model", "pairs.jsonl", "new"),
        "STORE must",
        "store must",
    ),
    (
        "tune model nowhere pairs.jsonl --out new",
        lambda: adiabat.tune("model", "nowhere", "pairs.jsonl", "new"),
        "adiabat embed MODEL CORPUS --out nowhere",
        'adiabat.embed(model, corpus, out="nowhere")',
    ),
    (
        "embed no-such/model corpus.jsonl --out new",
        lambda: adiabat.embed("no-such/model", "corpus.jsonl", "new"),
        "MODEL must",
        "model must",
    ),
    (
        "embed model model --out new",
        lambda: adiabat.embed("model", "model", "new"),
        "CORPUS must",
        "corpus must",
    ),
    (
        "embed model corpus.jsonl --out notes",
        lambda: adiabat.embed("model", "corpus.jsonl", "notes"),
        "another --out",
        "another out",
    ),
    (
        "embed model other.jsonl --out store",
        lambda: adiabat.embed("model", ["a"], "store"),
        "another --out",
        "another out",
    ),
    (
        "evaluate model store pairs.jsonl --out job",
        lambda: adiabat.evaluate("model", "store", "pairs.jsonl", out="job"),
        "--out",
        "out must",
    ),
    (
        "evaluate model store pairs.jsonl --out new --retain store pairs.jsonl",
        lambda: adiabat.evaluate("model", "store", "pairs.jsonl", retain=[("store", "pairs.jsonl")]),
        "--retain must",
        "retain must",
    ),
    (
        "evaluate model store pairs.jsonl --out new --run model",
        lambda: adiabat.evaluate("model", "store", "pairs.jsonl", runs=["model"]),
        "--run must",
        "runs must",
    ),
    (
        "evaluate model store pairs.jsonl --out new --run small --power",
        lambda: adiabat.evaluate("model", "store", "pairs.jsonl", runs=["small"], power=True),
        "--power",
        "power is",
    ),
    (
        "evaluate model store pairs.jsonl --out new --baseline-store store",
        lambda: adiabat.evaluate("model", "store", "pairs.jsonl", baseline_stores=["store"]),
        "--baseline-store must come with --baseline",
        "baseline_stores must come with baseline",
    ),
    (
        "space model store pairs.jsonl --out new --baseline-store store",
        lambda: adiabat.space("model", "store", "pairs.jsonl", baseline_store="store"),
        "--baseline-store must come with --baseline",
        "baseline_store must come with baseline",
    ),
    (
        "evaluate model store pairs.jsonl --out new --baseline small",
        lambda: adiabat.evaluate("model", "store", "pairs.jsonl", baseline="small"),
        "embed small CORPUS --out DIR and add --baseline-store DIR",
        'adiabat.embed("small", corpus, out="DIR") and add baseline_stores=["DIR"]',
    ),
    (
        "evaluate model --suite mteb-eigt --out new",
        lambda: adiabat.evaluate_suite(["model"], "mteb-eigt", "new"),
        "--suite must",
        "suite must",
    ),
    (
        "search store ' ' --model model",
        lambda: adiabat.search("store", " ", model="model"),
        "QUERY must",
        "query must",
    ),
    (
        "train run.toml --out notes",
        lambda: adiabat.train("model", "pairs.jsonl", "notes"),
        "--out must",
        "out must",
    ),
    (
        "train bare.toml --out new",
        lambda: adiabat.train(None, "pairs.jsonl", "new"),
        "--set job.model=...",
        'settings={"job": {"model": ...}}',
    ),
    (
        "mine pairs.jsonl corpus.jsonl --out m.txt",
        lambda: adiabat.mine("pairs.jsonl", "corpus.jsonl", "m.txt"),
        "--out must",
        "out must",
    ),
    (
        "mine pairs.jsonl corpus.jsonl --out m.jsonl --model model",
        lambda: adiabat.mine("pairs.jsonl", "corpus.jsonl", "m.jsonl", model="model"),
        "add --source dense",
        'add source="dense"',
    ),
    (
        "inspect pairs.jsonl --store store",
        lambda: adiabat.inspect("pairs.jsonl", store="store"),
        "add --model MODEL",
        'add model="MODEL"',
    ),
    (
        "compare model small --qrels x",
        lambda: adiabat.compare("model", "small", qrels="x"),
        "--qrels must",
        "qrels must",
    ),
    ("plan", lambda: adiabat.plan(), "--budget 1e17", "budget=1e17"),
    (
        "data xkcd run.toml --out new",
        lambda: adiabat.make("xkcd", "run.toml", "new"),
        "KIND must",
        "kind must",
    ),
    (
        "data squad run.toml --out notes",
        lambda: adiabat.make("squad", "run.toml", "notes"),
        "--out must",
        "out must",
    ),
    (
        "distill pair small model --out new",
        lambda: adiabat.distill_pair("small", "model", "new"),
        "--set distill.width=projection",
        'settings={"distill": {"width": "projection"}}',
    ),
    (
        "distill static model --out notes",
        lambda: adiabat.distill_static("model", "notes"),
        "--out must",
        "out must",
    ),
    (
        "distill fit --teacher model --student model --out new",
        lambda: adiabat.distill_fit("model", "model", "new"),
        "add --texts",
        "add texts",
    ),
    (
        "distill multilingual --teacher model --student model --out new",
        lambda: adiabat.distill_multilingual("model", "model", "new"),
        "add --parallel",
        "add parallel",
    ),
    (
        "safe-rate model store pairs.jsonl --out job",
        lambda: adiabat.safe_rate("model", "store", "pairs.jsonl", "job"),
        "--out must",
        "out must",
    ),
    (
        "advise model store pairs.jsonl --out job",
        lambda: adiabat.advise("model", "store", "pairs.jsonl", out="job"),
        "--out must",
        "out must",
    ),
]


CAPITALS = re.compile(r"\b(MODEL|STORE|DATA|CORPUS|QUERY|KIND) (must|is|comes)\b|adiabat [a-z-]+ [A-Z-]")
FLAG, KEYWORD = re.compile(r"(?<![\w-])--[a-z]"), re.compile(r"(?<![.\w])([a-z_]+)=(?=[\"\[{T\d])")


@pytest.mark.parametrize(
    ("command", "call", "typed", "python"), REFUSALS, ids=[command for command, *_ in REFUSALS]
)
def test_a_refusal_speaks_the_words_of_its_door(
    run: Run, command: str, call: Call, typed: str, python: str
) -> None:
    said = run(*shlex.split(command))
    assert said.code == 2, said.err
    assert typed in said.err
    assert not re.search(r"\b\w+=True|settings=\{|adiabat\.\w+\(", said.err)
    with pytest.raises((AdiabatError, ValueError)) as caught:
        call()
    told = str(caught.value)
    assert python in told
    assert not FLAG.search(told)
    assert not CAPITALS.search(told)
    assert set(KEYWORD.findall(told)) - known_keywords() == set()


@cache
def known_keywords() -> set[str]:
    """Arguments of the public functions, and the settings that are keywords of some."""
    functions = [
        getattr(adiabat, name)
        for name in ("embed", "tune", "train", "evaluate", "space", "inspect", "plan", "mine")
    ]
    return {
        "source",
        "budget",
        *(name for function in functions for name in inspect.signature(function).parameters),
    }
