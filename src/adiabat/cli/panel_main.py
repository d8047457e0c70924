"""The main job: embed, advise, tune, evaluate, search."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from adiabat.api.call import say
from adiabat.cli.options import (
    AsJson,
    Assignments,
    Baseline,
    Config,
    Device,
    ExistOk,
    ItsStore,
    Model,
    Resume,
    Seed,
    Split,
    TuningData,
    answer,
    complain,
    in_json,
    option,
    settings_of,
    show,
)
from adiabat.core.errors import ConfigError
from adiabat.core.text import counted
from adiabat.core.wording import call_began

if TYPE_CHECKING:
    from adiabat.results.evaluation_result import Result

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL STORE DATA | MODEL...",
        help="A model, whose query tower encodes queries, a store of its document vectors "
        "and the target data set; with --suite any number "
        "of models, or bm25.",
        show_default=False,
    ),
]
Suite = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="SUITE",
        help="Measure models on the tasks of this TOML file, or of the suite mteb-eight (extra mteb).",
    ),
]
AskPower = Annotated[
    bool,
    typer.Option(
        "--power",
        help="Print which improvement each set could show, and which loss it "
        "could exclude, with 80 % probability.",
    ),
]
FailOn = Annotated[
    Literal["worse", "undecided"] | None,
    option(
        "--fail-on",
        None,
        "Exit with code 3 if a set, or a cell of a language grid, is worse; undecided: "
        "or if a set is undecided or its training unknown.",
    ),
]


def embed(
    out: Annotated[Path, typer.Option("--out", metavar="STORE", help="Directory of the store.")],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="Model whose document tower encodes the corpus.", show_default=False
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Argument(
            metavar="CORPUS",
            help="BEIR folder, JSONL, CSV, TSV, Parquet, hf:NAME, or examples that hold their documents.",
            show_default=False,
        ),
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add the corpus, whose ids are new, to the store in --out.")
    ] = False,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Encode what is new or changed; it replaces documents of the store in --out by their ids.",
        ),
    ] = False,
    delete: Annotated[
        Path | None,
        option(
            "--delete",
            "IDS",
            "Delete these documents of the store in --out, alone or with --update: a file of ids, as --ids.",
        ),
    ] = None,
    missing: Annotated[
        Literal["error", "drop"] | None,
        option("--missing", None, "Ids of --delete that the store lacks: stop, or pass over them."),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", help="Remove the vectors of deleted and replaced documents from the store in --out."
        ),
    ] = False,
    vectors: Annotated[
        Path | None,
        typer.Option(
            "--import", metavar="FILE", help="Store these vectors (.npy, Parquet, faiss) instead of encoding."
        ),
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(
            "--ids", metavar="FILE", help="Document ids of --import, one per line, if that file has none."
        ),
    ] = None,
    min_cosine: Annotated[
        str | None,
        option(
            "--min-cosine",
            "X",
            "Cosine of --import's vectors to the model's own (store.min_cosine). Default: 0.999.",
        ),
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Encode a corpus into a store of document vectors, or keep a store up to date.

    Repeat the command to continue an interrupted run.
    """
    from adiabat.config.shared import EmbedSettings

    settings = settings_of(
        EmbedSettings, config, assignments, device=device, numbers={"store.min_cosine": min_cosine}
    )
    words: dict[str, object] = {
        "MODEL": model,
        "CORPUS": corpus,
        "--append": append,
        "--update": update,
        "--import": vectors,
        "--ids": ids,
    }
    words |= {
        "--min-cosine": min_cosine,
        "--config": config,
        "--set": assignments,
        "--device": device,
        "--delete": delete,
        "--missing": missing,
        "--compact": compact,
        "--exist-ok": exist_ok,
    }
    _require_together(
        [name for name, value in words.items() if value not in (None, False)],
        deletes_only=delete is not None and not update,
    )
    import adiabat

    into: dict[str, Any] = {
        "update": update,
        "delete": delete,
        "missing": missing,
        "exist_ok": exist_ok or None,
        "settings": settings,
    }
    if compact:
        store = adiabat.compact(out)
    elif delete is not None and not update:
        store = adiabat.delete(out, delete, missing=missing, settings=settings)
    elif vectors is not None:
        store = adiabat.import_vectors(vectors, out, ids=ids, texts=corpus, model=model, **into)
    else:
        assert model is not None
        assert corpus is not None
        store = adiabat.embed(model, corpus, out, append=append, **into)
    say(f"{store.count:,} documents, {store.width} numbers each, {store.dtype}")
    answer(
        {"store": str(out), "count": store.count, "width": store.width, "dtype": store.dtype}
        if as_json
        else str(out)
    )


def _require_together(words: Sequence[str], *, deletes_only: bool) -> None:
    """Refuse arguments and options of `embed` that do not fit together."""
    alone = (
        {"--compact"}
        if "--compact" in words
        else {"--delete", "--missing", "--config", "--set"}
        if deletes_only
        else None
    )
    if alone is not None:
        if others := [word for word in words if word not in alone]:
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


def advise(
    model: Model,
    store: ItsStore,
    data: TuningData,
    retain: Annotated[
        list[str] | None, option("--retain", "STORE DATA", "A data set that must not get worse; repeatable.")
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "--out", "DIR", "Directory for result.json and report.html. Default: only the tables are printed."
        ),
    ] = None,
    split: Split = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Recommend before tuning: leave it, fuse with BM25, tune the query tower, get more data, or re-embed."""
    from adiabat.config.shared import AdviseSettings

    settings = settings_of(AdviseSettings, config, assignments, seed=seed, device=device, split=split)
    import adiabat

    result = adiabat.advise(
        model, store, data, retain=_pairs(retain), out=out, settings=settings, exist_ok=exist_ok or None
    )
    show(result, as_json=as_json, location=None if out is None else result.page)


def _pairs(retain: list[str] | None) -> list[tuple[str, str]]:
    """Store and data of each --retain, which `fold_retain` joined."""
    return [(store, data) for store, _, data in (value.partition("\0") for value in retain or ())]


def tune(
    model: Model,
    store: ItsStore,
    data: TuningData,
    out: Annotated[Path | None, option("--out", "JOB", "Directory of the job; afterwards a MODEL.")] = None,
    recipe: Annotated[
        Literal["quick", "safe", "paper"] | None,
        option(
            "--recipe",
            None,
            "Rate by a range test, within a time limit (quick); the largest rate within "
            "a drift limit (safe); or the regime of "
            "Vasilyev et al. 2024 (paper). Default: quick, or paper if the settings "
            "have a learning rate, loss or negatives.",
        ),
    ] = None,
    seconds: Annotated[
        str | None,
        option("--budget-time", "TIME", "Time limit of the whole command: 10min (tune.budget_seconds)."),
    ] = None,
    split: Split = None,
    resume: Resume = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the settings and the expected time, and tune nothing.")
    ] = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Tune a query tower against stored document vectors, which stay as they are."""
    from adiabat.config.tuning import TuneSettings

    texts, numbers = {"tune.recipe": recipe}, {"tune.budget_seconds": seconds}
    settings = settings_of(
        TuneSettings, config, assignments, seed=seed, device=device, split=split, texts=texts, numbers=numbers
    )
    if dry_run:
        if resume or exist_ok:
            given = "--resume" if resume else "--exist-ok"
            raise ConfigError(f"{given} is about the job in --out, and --dry-run runs none; leave one out")
        from adiabat.api.tune_verb import estimate_tuning

        estimate = estimate_tuning(model, store, data, out, settings=settings, began=call_began())
        answer(estimate.to_json() if as_json else estimate.summary())
        return
    if out is None:
        raise ConfigError("tune takes --out JOB, the directory of the job, got none; add it, or --dry-run")
    import adiabat

    result = adiabat.tune(
        model, store, data, out, settings=settings, resume=resume, exist_ok=exist_ok or None
    )
    from adiabat.report.power_section import in_brief

    _say_tuned(result)
    for power in result.power:
        say(in_brief(power))
    answer(in_json(result) if as_json else str(out))


def _say_tuned(result: "Result") -> None:
    record = result.training
    assert record is not None
    if not record.steps:
        say(f"nothing was trained: {record.stop_reason}")
        return
    first, best = record.validation_errors[0][1], dict(record.validation_errors)[record.best_epoch]
    keep = record.settings["tune"]["keep"]
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


def evaluate(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Directory for result.json and report.html.")
    ],
    words: Words = None,
    suite: Suite = None,
    split: Annotated[
        str | None, option("--split", "NAME", "Split of the target data set. Default: test.")
    ] = None,
    run: Annotated[
        list[str] | None, option("--run", "JOB", "A further run of MODEL, of another seed; repeatable.")
    ] = None,
    baseline: Baseline = None,
    baseline_store: Annotated[
        list[Path] | None,
        option(
            "--baseline-store",
            "STORE",
            "Document vectors of the baseline, if its document tower differs; repeatable.",
        ),
    ] = None,
    retain: Annotated[
        list[str] | None, option("--retain", "STORE DATA", "A data set that must not get worse; repeatable.")
    ] = None,
    fail_on: FailOn = None,
    power: AskPower = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Compare a model with a baseline on a target and on retention sets; or compare any number of models on a
    suite of tasks.
    """
    from adiabat.config.shared import EvaluateSettings

    if suite is not None:
        options = {
            "--split": split,
            "--run": run,
            "--baseline-store": baseline_store,
            "--retain": retain,
            "--fail-on": fail_on,
            "--power": power,
            "--config": config,
        }
        if unused := [name for name, value in options.items() if value]:
            raise ConfigError(
                f"{', '.join(unused)} has no effect with --suite; leave it out, or leave out --suite"
            )
        _evaluate_suite(
            words or [],
            suite,
            out,
            baseline,
            assignments,
            seed=seed,
            device=device,
            exist_ok=exist_ok,
            as_json=as_json,
        )
        return
    if len(words or []) != 3:
        words_given = " ".join(words or []) or "neither"
        raise ConfigError(
            "evaluate takes MODEL STORE DATA, or --suite SUITE with models, got "
            f"{words_given}; see adiabat evaluate --help"
        )
    model, store, data = words or []
    settings = settings_of(EvaluateSettings, config, assignments, seed=seed, device=device)
    import adiabat

    result = adiabat.evaluate(
        model,
        store,
        data,
        runs=run or (),
        baseline=baseline,
        baseline_stores=baseline_store or (),
        retain=_pairs(retain),
        split=split,
        power=power,
        fail_on=fail_on,
        out=out,
        settings=settings,
        exist_ok=exist_ok or None,
    )
    show(result, as_json=as_json, location=out / "report.html")
    if fail_on is not None and (names := result.failing(fail_on)):
        complain(f"--fail-on {fail_on}: {', '.join(names)}")
        raise typer.Exit(3)


def _evaluate_suite(
    models: Sequence[str],
    suite: str,
    out: Path,
    baseline: str | None,
    assignments: list[str] | None,
    *,
    seed: str | None,
    device: str | None,
    exist_ok: bool,
    as_json: bool,
) -> None:
    from adiabat.config.tasks import SuiteSettings, suite_file

    texts = {"suite.baseline": baseline}
    settings = settings_of(
        SuiteSettings, suite_file(suite), assignments, seed=seed, device=device, texts=texts
    )
    import adiabat

    result = adiabat.evaluate_suite(models, settings, out=out, exist_ok=exist_ok or None)
    show(result, as_json=as_json, location=out / "report.html")


def _count(text: str | int) -> int:
    """A whole number above 0; typer's own conversion would report a parser error."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise typer.BadParameter(f"must be a whole number >= 1, got {text}")
    return number


def search(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One text.")],
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="Model whose query tower encodes the query.")
    ],
    compare: Annotated[
        list[str] | None, option("--compare", "MODEL", "Show this model's results too; repeatable.")
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", parser=_count, help="Number of results.")] = 10,
    config: Config = None,
    assignments: Assignments = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Search a store with a text, by one query tower or several."""
    from adiabat.config.shared import SearchSettings

    settings = settings_of(SearchSettings, config, assignments, device=device)
    import adiabat

    result = adiabat.search(store, query, model=model, compare=compare or (), k=k, settings=settings)
    answer(result.to_json() if as_json else result.summary())
