"""The main job: embed, advise, tune, evaluate, search."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

import adiabat
from adiabat.api.call import say
from adiabat.cli.options import (
    AS_JSON,
    BASELINE,
    CONFIG,
    DEVICE,
    EXIST_OK,
    FUSE,
    RESUME,
    SET,
    SPLIT,
    TUNING_INPUTS,
    USUAL,
    Given,
    Option,
    answer,
    argument,
    complain,
    in_json,
    number,
    option,
    required,
    setting,
    show,
    switch,
    verb,
)
from adiabat.config.reader import read_settings
from adiabat.core.errors import ConfigError
from adiabat.core.text import counted
from adiabat.core.wording import call_began

if TYPE_CHECKING:
    from adiabat.results.evaluation_result import Result
    from adiabat.results.training_record import TrainingRecord

RETAIN = option("--retain", "STORE DATA", "A data set that must not get worse; repeatable.", list[str])
"""typer has no repeatable option of two values: `fold_pairs` joins them, and `_pairs` parts them."""


def _optional_argument(metavar: str, text: str, kind: Any = str, *, name: str = "") -> Option:
    """An argument that may be left out; the verb refuses what is missing."""
    shown = typer.Argument(metavar=metavar, help=text, show_default=False)
    return Option(name or metavar.lower(), kind | None, metavar, shown)


@verb(
    required("--out", "STORE", "Directory of the store."),
    _optional_argument("MODEL", "Model whose document tower encodes the corpus."),
    _optional_argument(
        "CORPUS", "BEIR folder, JSONL, CSV, TSV, Parquet, hf:NAME, or examples that hold their documents."
    ),
    switch("--append", "Add the corpus, whose ids are new, to the store in --out."),
    switch(
        "--update",
        "Encode what is new or changed; it replaces documents of the store in --out by their ids.",
    ),
    option(
        "--delete",
        "IDS",
        "Delete these documents of the store in --out, alone or with --update: a file of ids, as --ids.",
        Path,
    ),
    option(
        "--missing",
        None,
        "Ids of --delete that the store lacks: stop, or pass over them.",
        Literal["error", "drop"],
    ),
    switch("--compact", "Remove the vectors of deleted and replaced documents from the store in --out."),
    option(
        "--import",
        "FILE",
        "Store these vectors (.npy, Parquet, faiss) instead of encoding.",
        Path,
        name="vectors",
    ),
    option("--ids", "FILE", "Document ids of --import, one per line, if that file has none.", Path),
    setting(
        "store.backend",
        "--backend",
        None,
        "What runs the encoder: OpenVINO needs a CPU and its extra, auto times both (store.backend). "
        "Default: auto.",
        Literal["auto", "torch", "openvino"],
    ),
    setting(
        "store.precision",
        "--precision",
        None,
        "Precision of the encoder; int8 is that of OpenVINO (store.precision). Default: auto.",
        Literal["auto", "fp32", "bf16", "int8"],
    ),
    number(
        "store.min_cosine",
        "--min-cosine",
        "X",
        "Cosine of --import's vectors to the model's own (store.min_cosine). Default: 0.999.",
    ),
    CONFIG,
    SET,
    DEVICE,
    EXIST_OK,
    AS_JSON,
)
def embed(given: Given) -> None:
    """Encode a corpus into a store of document vectors, or keep a store up to date.

    Repeat the command to continue an interrupted run.
    """
    from adiabat.config.shared import EmbedSettings

    settings = given.settings(EmbedSettings)
    deletes_only = given.delete is not None and not given.update
    _require_together(given.words(), deletes_only=deletes_only)

    # Both ways to new vectors take the same arguments beside their sources.
    into: dict[str, Any] = {
        "update": given.update,
        "delete": given.delete,
        "missing": given.missing,
        "exist_ok": given.exist_ok,
        "settings": settings,
    }
    # `_require_together` has let one of these four through.
    if given.compact:
        store = adiabat.compact(given.out)
    elif deletes_only:
        store = adiabat.delete(given.out, given.delete, missing=given.missing, settings=settings)
    elif given.vectors is not None:
        store = adiabat.import_vectors(
            given.vectors, given.out, ids=given.ids, texts=given.corpus, model=given.model, **into
        )
    else:
        store = adiabat.embed(given.model, given.corpus, given.out, append=given.append, **into)
    say(f"{store.count:,} documents, {store.width} numbers each, {store.dtype}")
    counts = {"store": str(given.out), "count": store.count, "width": store.width, "dtype": store.dtype}
    answer(counts if given.json else str(given.out))


def _require_together(words: Sequence[str], *, deletes_only: bool) -> None:
    """Refuse arguments and options of `embed` that do not fit together.

    The verb has four ways: encode a corpus, import vectors, delete documents alone, and compact. The last two
    change the store in --out, and have no use for a model or a corpus.
    """
    alone: set[str] = set()
    if "--compact" in words:
        alone = {"--compact"}
    elif deletes_only:
        alone = {"--delete", "--missing", "--config", "--set"}
    if alone:
        if others := [word for word in words if word not in {*alone, "--out", "--json"}]:
            purpose = "--compact" if "--compact" in words else "--delete without --update"
            raise ConfigError(
                f"{purpose} takes the store in --out alone, got {', '.join(others)} "
                "too; run one after the other"
            )
        return
    if absent := [word for word in ("MODEL", "CORPUS") if word not in words]:
        texts = "; CORPUS has the texts of --import, and may be the same file" if "--import" in words else ""
        raise ConfigError(
            f"{' and '.join(absent)} must be given, as in: adiabat embed MODEL CORPUS --out STORE{texts}"
        )
    if {"--append", "--import"} <= {*words}:
        raise ConfigError(
            "--append encodes a corpus, and --import takes vectors; import them into "
            "a store of their own, or with --update"
        )
    if "--ids" in words and "--import" not in words:
        raise ConfigError("--ids names the rows of --import, which is missing; give both, or neither")


@verb(
    *TUNING_INPUTS,
    RETAIN,
    option(
        "--out",
        "DIR",
        "Directory for result.json and report.html. Default: only the tables are printed.",
        Path,
    ),
    SPLIT,
    *USUAL,
)
def advise(given: Given) -> None:
    """Recommend before tuning: leave it, fuse with BM25, tune the query tower, get more data, or re-embed."""
    from adiabat.config.shared import AdviseSettings

    settings = given.settings(AdviseSettings)

    result = adiabat.advise(
        given.model,
        given.store,
        given.data,
        retain=_pairs(given.retain),
        out=given.out,
        settings=settings,
        exist_ok=given.exist_ok,
    )
    show(result, given, None if given.out is None else result.page)


def _pairs(values: Sequence[str] | None) -> list[tuple[str, str]]:
    """Both words of each value of an option, which `fold_pairs` joined."""
    return [(first, second) for first, _, second in (value.partition("\0") for value in values or ())]


@verb(
    *TUNING_INPUTS,
    option("--out", "JOB", "Directory of the job; afterwards a MODEL.", Path),
    setting(
        "tune.recipe",
        "--recipe",
        None,
        "Rate by a range test, within a time limit (quick); the largest rate within "
        "a drift limit (safe); or the regime of "
        "Vasilyev et al. 2024 (paper). Default: quick, or paper if the settings "
        "have a learning rate, loss or negatives.",
        Literal["quick", "safe", "paper"],
    ),
    number(
        "tune.budget_seconds",
        "--budget-time",
        "TIME",
        "Time limit of the whole command: 10min (tune.budget_seconds).",
    ),
    switch(
        "--anyway",
        "Tune even where the evidence of the recipes quick and safe says not to.",
        key="tune.evidence",
        stands_for="told",
    ),
    option(
        "--by",
        "COLUMN",
        "Tune a tower for each tenant that the column names, and one for all; file: for each file of the "
        "folder DATA.",
    ),
    RETAIN,
    SPLIT,
    RESUME,
    switch("--dry-run", "Print the settings and the expected time, and tune nothing."),
    *USUAL,
)
def tune(given: Given) -> None:
    """Tune a query tower against stored document vectors, which stay as they are."""
    if given.by is not None:
        _tune_tenants(given)
        return
    from adiabat.config.tuning import TuneSettings

    settings = given.settings(TuneSettings)
    inputs, retain = (given.model, given.store, given.data, given.out), _pairs(given.retain)
    # An estimate is of no particular job: --out is optional, and only checked where it is given.
    if given.dry_run:
        if given.resume or given.exist_ok:
            extra = "--resume" if given.resume else "--exist-ok"
            raise ConfigError(f"{extra} is about the job in --out, and --dry-run runs none; leave one out")
        from adiabat.api.tune_verb import estimate_tuning

        estimate = estimate_tuning(*inputs, retain=retain, settings=settings, began=call_began())
        answer(estimate.to_json() if given.json else estimate.summary())
        return
    if given.out is None:
        raise ConfigError("tune takes --out JOB, the directory of the job, got none; add it, or --dry-run")

    result = adiabat.tune(
        *inputs, retain=retain, settings=settings, resume=given.resume, exist_ok=given.exist_ok
    )
    from adiabat.report.power_section import in_brief

    _say_tuned(result)
    for power in result.power:
        say(in_brief(power))
    answer(in_json(result) if given.json else str(given.out))


def _tune_tenants(given: Given) -> None:
    """Tune a tower for each tenant."""
    from adiabat.config.tenant_towers import TenantSettings

    settings = given.settings(TenantSettings)
    if given.dry_run:
        raise ConfigError("--dry-run estimates one job, and --by runs one for each tenant; leave one out")
    if given.out is None:
        raise ConfigError("tune takes --out DIR, the directory of all towers, got none; add it")

    result = adiabat.tune_tenants(
        given.model,
        given.store,
        given.data,
        given.out,
        by=given.by,
        retain=_pairs(given.retain),
        settings=settings,
        resume=given.resume,
        exist_ok=given.exist_ok,
    )
    show(result, given, result.page)


def _say_tuned(result: "Result") -> None:
    """Say in one line how long a job ran, why it stopped, and which weights it kept."""
    record = result.training
    assert record is not None
    # A resumed job that was finished already, or a time limit that leaves no step.
    if not record.steps:
        say(f"nothing was trained: {record.stop_reason}")
        return
    # Epoch 0 is the validation before the first step.
    first, best = record.validation_errors[0][1], dict(record.validation_errors)[record.best_epoch]
    keep = record.settings["tune"]["keep"]
    if keep == "ranking":
        _say_chosen(record)
        return
    kept = "last" if keep == "last" else "best"
    outcome = (
        f"{kept} epoch {record.best_epoch}: {best:,} validation errors of "
        f"{record.validation_pairs:,} pairs, {first:,} at the start"
    )
    if not record.best_epoch:
        fewer = f"both a lower validation loss and fewer errors than the start's {first:,}"
        outcome = (
            f"no epoch had {fewer if keep == 'both' else 'a lower validation loss than the start'}: "
            "the starting weights are kept"
        )
    ran = f"{counted(record.steps, 'step')} in {counted(record.epochs, 'epoch')}, {record.seconds:.0f} s"
    say(f"{ran}; stopped after {record.stop_reason}; {outcome}")


def _say_chosen(record: "TrainingRecord") -> None:
    """Say how a run that keeps by ranking ended, and what it gained beside what was expected."""
    say(f"{counted(record.steps, 'step')}, {record.seconds:.0f} s; {record.stop_reason}")
    told = f"nDCG@10 of the validation queries: {record.shown or 0:+.1f} %"
    if record.expected is not None:
        gain, low, high = record.expected
        told += f", where {gain:+.1f} % [{low:+.1f}, {high:+.1f}] were expected"
    say(told)


@verb(
    required("--out", "DIR", "Directory for result.json and report.html."),
    _optional_argument(
        "MODEL STORE DATA | MODEL...",
        "A model, whose query tower encodes queries, a store of its document vectors "
        "and the target data set; with --suite any number "
        "of models, or bm25.",
        list[str],
        name="inputs",
    ),
    option(
        "--suite",
        "SUITE",
        "Measure models on the tasks of this TOML file, or of the suite mteb-eight (extra mteb).",
    ),
    option("--split", "NAME", "Split of the target data set. Default: test."),
    option("--run", "JOB", "A further run of MODEL, of another seed; repeatable.", list[str]),
    BASELINE,
    option(
        "--baseline-store",
        "STORE",
        "Document vectors of the baseline, if its document tower differs; repeatable.",
        list[Path],
    ),
    FUSE,
    setting(
        "fuse.baseline",
        "--baseline-fuse",
        "none",
        "Rank the baseline by vectors alone (fuse.baseline). Default: same.",
    ),
    RETAIN,
    option(
        "--unlabelled",
        "DATA FILE",
        "Further queries of a data set's kind that nobody judged, such as a query log: "
        "with thousands of them, fewer judged queries exclude a loss; repeatable.",
        list[str],
    ),
    option(
        "--fail-on",
        None,
        "Exit with code 3 if a set, or a cell of a language grid, is worse; undecided: "
        "or if a set is undecided or its training unknown.",
        Literal["worse", "undecided"],
    ),
    switch(
        "--power",
        "Print which improvement each set could show, and which loss it "
        "could exclude, with 80 % probability.",
    ),
    *USUAL,
)
def evaluate(given: Given) -> None:
    """Compare a model with a baseline on a target and on retention sets; or compare any number of models on a
    suite of tasks.
    """
    if given.suite is not None:
        _evaluate_suite(given)
        return
    from adiabat.config.shared import EvaluateSettings

    words = given.inputs or []
    # One argument holds all words, since --suite takes any number of models.
    if len(words) != 3:
        words_given = " ".join(words) or "neither"
        raise ConfigError(
            "evaluate takes MODEL STORE DATA, or --suite SUITE with models, got "
            f"{words_given}; see adiabat evaluate --help"
        )
    settings = given.settings(EvaluateSettings)

    result = adiabat.evaluate(
        *words,
        runs=given.run or (),
        baseline=given.baseline,
        baseline_stores=given.baseline_store or (),
        retain=_pairs(given.retain),
        unlabelled=_pairs(given.unlabelled),
        split=given.split,
        power=given.power,
        fail_on=given.fail_on,
        out=given.out,
        settings=settings,
        exist_ok=given.exist_ok,
    )
    show(result, given, given.out / "report.html")
    if given.fail_on is not None and (names := result.failing(given.fail_on)):
        complain(f"--fail-on {given.fail_on}: {', '.join(names)}")
        # Scripts tell a model that got worse (3) from a command that failed (1 or 2).
        raise typer.Exit(3)


NOT_OF_SUITES = (
    "--split",
    "--run",
    "--baseline-store",
    "--retain",
    "--unlabelled",
    "--fuse",
    "--baseline-fuse",
    "--fail-on",
    "--power",
    "--config",
)
"""Options of `evaluate` that have no effect with --suite, whose file has settings for most of them."""


def _evaluate_suite(given: Given) -> None:
    """Compare any number of models on the tasks of a suite."""
    from adiabat.config.tasks import SuiteSettings, suite_file

    if unused := [word for word in given.words() if word in NOT_OF_SUITES]:
        raise ConfigError(
            f"{', '.join(unused)} has no effect with --suite; leave it out, or leave out --suite"
        )
    # A suite has no --config: its own file holds the settings.
    assignments = given.assignments({"suite.baseline": given.baseline})
    settings = read_settings(SuiteSettings, suite_file(given.suite), assignments)

    result = adiabat.evaluate_suite(given.inputs or (), settings, out=given.out, exist_ok=given.exist_ok)
    show(result, given, given.out / "report.html")


def _count(text: str | int) -> int:
    """A whole number above 0; typer's own conversion would report a parser error."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise typer.BadParameter(f"must be a whole number >= 1, got {text}")
    return number


@verb(
    argument("STORE", "Document vectors.", Path),
    argument("QUERY", "One text."),
    required("--model", "MODEL", "Model whose query tower encodes the query.", str),
    option("--compare", "MODEL", "Show this model's results too; repeatable.", list[str]),
    FUSE,
    Option(
        "k", int, "-k", typer.Option("-k", metavar="N", parser=_count, help="Number of results."), default=10
    ),
    CONFIG,
    SET,
    DEVICE,
    AS_JSON,
)
def search(given: Given) -> None:
    """Search a store with a text, by one query tower or several."""
    from adiabat.config.shared import SearchSettings

    settings = given.settings(SearchSettings)

    result = adiabat.search(
        given.store,
        given.query,
        model=given.model,
        compare=given.compare or (),
        k=given.k,
        settings=settings,
    )
    answer(result.to_json() if given.json else result.summary())
