"""Bad input to the verbs that train, measure, plan and distill, in one world: one line, exit code 2, and
nothing left behind.
"""

from pathlib import Path

import pytest
import tomli_w

import adiabat
from adiabat.models.embedding_head import EncoderSettings
from adiabat.runs.run_config import without_none
from tests.commands import (
    DOCUMENTS,
    PAIRS,
    Mistake,
    Run,
    assert_refused,
    lines,
    listing,
    setting,
    write_world,
)
from tests.commands import run as run
from tests.experiments.scaling.world import tables_of as scaling_tables
from tests.experiments.sweep.world import tables_of as sweep_tables
from tests.tiny import save_tiny

TRAIN = """
[job]
model = "model"
data = "train.jsonl"

[data]
validation_fraction = 0.3

[train]
batch_size = 6
"""
SUITE = '[[tasks]]\nkind = "sts"\nname = "likeness"\ndata = "sts.jsonl"\n'
GRID = {"label": 0, "premise": {"en": "a b", "de": "c d"}, "hypothesis": {"en": "e f", "de": "g h"}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its store, another of half the width with its own, data of every kind, and files of
    settings.
    """
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    save_tiny(here / "small", seed=3, width=16, settings=EncoderSettings(max_tokens=64))
    adiabat.embed(here / "small", here / "corpus.jsonl", here / "small_store")
    rows = {
        "parallel.jsonl": [{"en": f"text {number}", "de": f"Satz {number}"} for number in range(20)],
        "sts.jsonl": [
            {"a": document["text"], "b": "a text", "score": number}
            for number, document in enumerate(DOCUMENTS)
        ],
        "train.jsonl": [
            {"query": pair["query"], "positive": DOCUMENTS[n]["text"]} for n, pair in enumerate(PAIRS)
        ],
        "one.jsonl": PAIRS[:1],
        "grid.jsonl": [GRID],
    }
    for name, content in rows.items():
        lines(here / name, content)
    scaling = scaling_tables(
        Path(), scaling={"out": None}, models=[{"model": "model", "blocks": [1], "pretraining_rate": 0.03}]
    )
    inputs = {"model": "model", "store": "store", "data": "pairs.jsonl"}
    tasks = [{"kind": "retrieval", "name": "test", "data": "pairs.jsonl", "corpus": "corpus.jsonl"}]
    sweep = sweep_tables(
        Path(), sweep={"out": None}, job=inputs, tasks=tasks, probes={"data": "corpus.jsonl"}
    )
    files = {
        "train.toml": TRAIN,
        "no_model.toml": TRAIN.replace('model = "model"\n', ""),
        "typos.toml": TRAIN.replace("fraction", "frction").replace("[job]", "[jobs]"),
        "bad.toml": "[train\n",
        "suite.toml": SUITE,
        # Of another layout than the task's.
        "faulty_suite.toml": SUITE.replace("sts.jsonl", "pairs.jsonl"),
        "scaling.toml": tomli_w.dumps(without_none(scaling)),
        "sweep.toml": tomli_w.dumps(without_none(sweep)),
        "notes/todo.txt": "x",
        "begun/config.toml": '[job]\nmodel = "model"\n',
    }
    for name, text in files.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text, encoding="utf-8")
    return here


def train(*more: str, file: str = "train.toml", out: str | None = "new") -> tuple[str, ...]:
    return ("train", file, *(("--out", out) if out else ()), *more)


def suite(*words: str, file: str = "suite.toml") -> tuple[str, ...]:
    return ("evaluate", *words, "--suite", file, "--out", "new")


def space(
    *more: str, model: str = "model", store: str = "store", queries: str = "pairs.jsonl"
) -> tuple[str, ...]:
    return (
        "space",
        model,
        store,
        queries,
        "--out",
        "new",
        *setting("space.resamples=100", "space.pairs=200", "space.folds=2"),
        *more,
    )


def safe_rate(*more: str) -> tuple[str, ...]:
    return ("safe-rate", "model", "store", "pairs.jsonl", "--out", "new", "--device", "cpu", *more)


def scaling(*more: str) -> tuple[str, ...]:
    return ("scaling", "scaling.toml", "--out", "new", *more)


def sweep(*assignments: str) -> tuple[str, ...]:
    return ("sweep", "sweep.toml", "--out", "new", "--device", "cpu", *setting(*assignments))


def plan(*more: str) -> tuple[str, ...]:
    return ("plan", "--budget", "1e15", *more)


def static(*more: str, teacher: str = "model", out: str = "new") -> tuple[str, ...]:
    return ("distill", "static", teacher, "--out", out, *more)


def taught(kind: str, *more: str) -> tuple[str, ...]:
    return ("distill", kind, "--teacher", "model", "--student", "small", "--out", "new", *more)


def ablate(*more: str, file: str = "suite.toml", out: str = "new") -> tuple[str, ...]:
    return ("distill", "ablate", "model", "--suite", file, "--out", out, *more)


MISTAKES: list[Mistake] = [
    (("train",), "Missing", "adiabat train --help"),
    (train(file="none.toml"), "none.toml", "must be a TOML file of settings"),
    (train(file="bad.toml"), "bad.toml must be TOML", "line 1"),
    (train(file="notes"), "must be a readable TOML file", "notes"),
    (
        train(file="typos.toml"),
        "3 faults",
        "did you mean job.data?",
        "did you mean data.validation_fraction?",
    ),
    (train(*setting("train.los=pair")), "unknown key train.los; did you mean train.loss?"),
    (train(file="no_model.toml"), "job.model must be given, got none", "--set job.model=..."),
    (train(out=None), "job.out must be given, got none"),
    (train("--dry-run", file="no_model.toml", out=None), "job.model must be given, got none"),
    (train(*setting("job.data=pair.jsonl")), "pair.jsonl must exist", "pairs.jsonl"),
    (train(*setting("job.model=no-such/model")), "job.model must be a directory", "no-such/model"),
    (train("--device", "cuda:63"), "run.device must be a device of this machine", "'cuda:63'"),
    (train(out="notes"), "--out must be a new or empty directory", "notes"),
    (train(out="begun"), "begun holds a job already", "--resume"),
    (train("--resume", out="begun"), "--resume must continue the job in begun with its settings"),
    (
        ("evaluate", "model", "small", "--out", "new"),
        "takes MODEL STORE DATA, or --suite SUITE with models, got model small",
    ),
    (suite("model", file="none.toml"), "none.toml must be a TOML file of settings, got no such file"),
    (suite("model", file="mteb-nine"), "got mteb-nine; did you mean mteb-eight?"),
    (
        suite("model", "--split", "test"),
        "--split has no effect with --suite; leave it out, or leave out --suite",
    ),
    (suite("model", "--retain", "a", "b"), "--retain has no effect with --suite"),
    (suite(), "at least one model must be given, got none"),
    (
        suite("model", "--baseline", "small"),
        "suite.baseline must be the name of a model, got small; the models are model",
    ),
    (
        suite("model", *setting("measure.report=['nDGC']")),
        "measure.report must hold complete names that ir-measures",
    ),
    (suite("nowhere"), "nowhere"),
    (suite("bm25:klingon"), "klingon"),
    (suite("model", "notes"), "notes must be the directory of a model"),
    (suite("model", "suite.toml"), "MODEL must be a directory, a job, `demo` or a hub name"),
    (space(model="store", store="model"), "the order is MODEL STORE QUERIES"),
    (space(model="small"), "store was built by another encoder than small's: "),
    (space("--baseline", "small"), "must be stored by the baseline small too"),
    (
        space("--baseline-store", "small_store"),
        "--baseline-store must come with --baseline, got small_store alone; name the baseline",
    ),
    (
        space("--baseline", "model", "--baseline-store", "small_store"),
        "--baseline-store small_store must serve a data set",
    ),
    (space(queries="one.jsonl"), "must have at least 20 different positives, got 1 of"),
    (space(queries="grid.jsonl"), "QUERIES must be queries with positives, got the language grid grid.jsonl"),
    (safe_rate("--probes", "nowhere.txt"), "nowhere.txt must exist, got no such file"),
    (
        safe_rate(*setting("rate_search.low=1")),
        "rate_search.low must be below high, got 1 and 1e-05; swap them",
    ),
    (safe_rate(*setting("rate_search.count=1")), "rate_search.count must be >= 2, got 1; the default is 10"),
    (
        safe_rate(*setting("rate_search.count=100000000")),
        "rate_search.count must be <= 1000, got 100000000; the default is 10",
    ),
    (safe_rate(*setting("guard.limit=loud")), "guard.limit must be a number > 0, or \"noise\", got 'loud'"),
    (
        safe_rate(*setting("tune.learning_rate=1e-6")),
        "safe-rate searches for tune.learning_rate, got it by --set; leave it out",
    ),
    (
        safe_rate(*setting("tune . learning_rate=1e-6")),
        "safe-rate searches for tune.learning_rate, got it by --set; leave it out",
    ),
    (
        safe_rate(*setting("tune={learning_rate=1e-6}")),
        "safe-rate searches for tune.learning_rate, got it by --set; leave it out",
    ),
    (
        safe_rate(*setting("guard=false")),
        "guard must be on",
        "which measures drift, got false; leave it out",
    ),
    (
        safe_rate(*setting("guard.probes=some.txt"), "--probes", "other.txt"),
        "guard.probes must be given once, got some.txt by --set and other.txt by --probes; leave one out",
    ),
    (safe_rate(*setting("tune.method=lora", "tune.method.rank=1000")), "rank must be <= "),
    (safe_rate(*setting("tune.freeze=['nothing']")), "nothing"),
    (
        safe_rate(*setting("tune.negatives.difficulty=9")),
        "every query must list at least tune.negatives.difficulty = 9 negatives",
    ),
    (("scaling", "gone.toml"), "gone.toml"),
    (
        scaling("--engine", "steam"),
        "scaling.toml and --set: scaling.engine must be 'process' or 'ray', "
        "got 'steam'; the default is 'process'",
    ),
    (scaling(*setting("methods.prompt=true")), "unknown key methods.prompt"),
    (scaling(*setting("scaling.budgets=[0.0]")), "scaling.budgets must be > 0, got 0"),
    (
        scaling(*setting("train.budget_flops=1e9")),
        "train.budget_flops must be left out of a scaling experiment",
    ),
    (
        scaling(*setting('models=[{model="model"}]')),
        "models.pretraining_rate of model must be given without rates.full",
    ),
    (("plan",), "plan.budget must be given, got none; add --budget, such as --budget 1e17"),
    (("plan", "--budget", "much"), "plan.budget must be a number"),
    (
        plan("--runs", "gone"),
        "plan.runs must be the directory of a scaling experiment, or its runs.parquet, got gone",
    ),
    (
        plan("--memory", "24"),
        'plan.memory must be an amount with a unit, such as "24GiB" or "80GB", got \'24\'',
    ),
    (plan("--runs", "x", "--model", "demo"), "plan.models must be left out with plan.runs"),
    (plan("--model", "model", "--out", "model"), "--out must be a directory of its own, model is a model"),
    (plan("--model", "gone"), "gone"),
    (sweep("grid.tune.learning_rat=[1.0]"), "sweep.toml and --set: ", "did you mean tune.learning_rate?"),
    (sweep("job.store=nowhere"), "nowhere"),
    (sweep("job.data=nowhere.jsonl"), "nowhere.jsonl"),
    (sweep("sweep.targets=['mine']"), "sweep.targets must be names of tasks, got mine; the tasks are test"),
    (sweep("probes.data=nowhere.txt"), "nowhere.txt must exist, got no such file"),
    (sweep("sweep.seeds=[0, 0]"), "sweep.seeds must be a list that names each seed once"),
    (static(teacher="gone"), "gone"),
    (static(out="model"), "--out must be a new or empty directory, model holds other files"),
    (static("--dims", "99"), "static.reduction.dims must be at most 32, the width of the teacher, got 99"),
    (static("--dims", "few"), "static.reduction.dims must be a whole number"),
    (static("--sif", "2"), "static.weighting.a must be < 1, got 2"),
    (static("--vocabulary", "gone.txt"), "static.vocabulary must be a readable file, got gone.txt"),
    (static("--corpus", "gone.jsonl"), "gone.jsonl"),
    (
        taught("fit"),
        "data.texts must be given, got none; write it into the file, or add --texts or --queries",
    ),
    (
        ("distill", "fit", "--texts", "corpus.jsonl"),
        "distill.teachers must be given, got none; distill.student must be given, got none",
    ),
    (taught("fit", "--texts", "gone.jsonl"), "gone.jsonl"),
    (taught("fit", "--texts", "corpus.jsonl", *setting("train.loss=hinge")), "train.loss must be"),
    (taught("multilingual", "--parallel", "gone.en,gone.de"), "gone.en"),
    (
        taught("multilingual", "--parallel", "corpus.jsonl"),
        'corpus.jsonl:1: must have a text in "en", the source language',
    ),
    (
        taught("multilingual", "--parallel", "parallel.jsonl", "--languages", "fr"),
        "languages must be of the parallel texts (de), got fr",
    ),
    (
        ("distill", "pair", "small", "model", "--out", "new"),
        "of small must be as wide as the documents of model, 32, got 16; fit "
        "it with --set distill.width=projection",
    ),
    (("distill", "pair", "small", "model", "--out", "model"), "must be a new or empty directory"),
    (("distill", "ablate", "model", "--out", "new"), "ablate.suite must be given, got none"),
    (ablate(file="gone.toml"), "gone.toml"),
    (ablate(file="faulty_suite.toml"), "pairs.jsonl"),
    (ablate("--texts", "gone.jsonl"), "gone.jsonl"),
    (ablate(*setting("static.weighting.corpus=gone.jsonl")), "gone.jsonl"),
    (ablate(*setting("static.vocabulary=gone.txt")), "gone.txt"),
    (ablate(*setting("static.reduction.dims=99")), "static.reduction.dims must be at most 32"),
    (ablate(*setting("static.pooling=last")), "static.pooling must be left out of an ablation"),
    (ablate(out="model"), "--out must be a new or empty directory"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[" ".join(command) for command, *_ in MISTAKES])
def test_a_mistake_gets_one_line_and_leaves_nothing_behind(
    mistake: tuple[tuple[str, ...], *tuple[str, ...]], run: Run, world: Path
) -> None:
    command, *facts = mistake
    before = listing(world)
    assert_refused(run(*command), *facts)
    assert listing(world) == before
