"""Verbs that make vectors and weights: embed, tune, train."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adiabat.cli.console import say, watching
from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, answer, command_line, rank, settings_of, show_result, told_once

if TYPE_CHECKING:
    from adiabat.results.evaluation_result import Result


def embed(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Its document tower encodes.")],
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="BEIR folder, JSONL, CSV, TSV, Parquet, hf:NAME, or examples.")],
    out: Annotated[Path, typer.Option("--out", help="Directory of the store.")],
    append: Annotated[bool, typer.Option("--append", help="Add the corpus to the store at --out.")] = False,
    vectors: Annotated[Path | None, typer.Option("--import", help="Take these vectors (.npy, Parquet, faiss) instead of encoding.")] = None,
    ids: Annotated[Path | None, typer.Option("--ids", help="Document ids of --import, one per line.")] = None,
    config: Config = None,
    assignments: Assignments = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Encode a corpus into a store of document vectors; cut short, the same command goes on."""
    from adiabat.config.shared import EmbedSettings

    settings = settings_of(EmbedSettings, config, assignments, device=device)
    import adiabat

    with watching() as watch:
        store = adiabat.embed(model, corpus, out, settings=settings, append=append, vectors=vectors, ids=ids, watch=watch)
    say(f"{store.count:,} documents, {store.width} numbers each, {store.dtype}")
    answer({"store": str(out), "count": store.count, "width": store.width, "dtype": store.dtype} if as_json else str(out))


def tune(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Where the query tower starts.")],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors of this model.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Queries with positives and perhaps negatives.")],
    out: Annotated[Path, typer.Option("--out", help="Directory of the job; afterwards a MODEL.")],
    split: Annotated[str | None, typer.Option("--split", help="Short for --set data.split=NAME.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a job that was cut short.")] = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Tune a query tower against stored document vectors, which stay as they are."""
    from adiabat.config.tuning import TuneSettings

    settings = settings_of(TuneSettings, config, assignments, seed=seed, device=device, split=split)
    from adiabat.api.preflight import check_tune

    check_tune(model, store, data, out, settings, resume=resume)
    # Not before, for it takes seconds to load.
    import adiabat

    with watching() as watch:
        result = adiabat.tune(model, store, data, out, settings=settings, resume=resume, command=command_line(), watch=watch)
    assert result.training is not None
    _say_tuned(result)
    answer(result.to_json() if as_json else str(out))


def _say_tuned(result: "Result") -> None:
    from adiabat.core.text import counted

    record = result.training
    assert record is not None
    first, best = record.validation_errors[0][1], dict(record.validation_errors)[record.best_epoch]
    outcome = f"best epoch {record.best_epoch}: {best:,} validation errors of {record.validation_pairs:,} pairs, {first:,} at the start"
    if not record.steps:
        say(f"nothing was trained: {record.stop_reason}")
        return
    if not record.best_epoch:
        outcome = f"no epoch had both a lower validation loss and fewer errors than the start's {first:,}: the starting weights are kept"
    ran = f"{counted(record.steps, 'step')} in {counted(record.epochs, 'epoch')}, {record.seconds:.0f} s"
    say(f"{ran}; stopped after {record.stop_reason}; {outcome}")


def train(
    config: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Model, data, towers, loss: job.model and job.data are required.")],
    out: Annotated[Path | None, typer.Option("--out", help="Short for --set job.out=DIR.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a job that was cut short.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what the run would take, and begin no job.")] = False,
    seconds: Annotated[
        str | None,
        typer.Option("--budget-time", metavar="TIME", help="Such as 8h; short for --set train.budget_seconds=N.", show_default=False),
    ] = None,
    budget: Annotated[str | None, typer.Option("--budget-flops", help="Short for --set train.budget_flops=N.", show_default=False)] = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train both towers of a dual encoder on pairs of texts."""
    from adiabat.config.dual_training import TrainSettings

    with told_once():
        settings = settings_of(TrainSettings, config, assignments, seed=seed, device=device, out=out, budget_flops=budget, seconds=seconds)
        from adiabat.api.preflight import check_train

        check_train(settings, resume=resume, dry_run=dry_run)
    # Not before, for it takes seconds to load.
    import adiabat

    with watching() as watch:
        if dry_run:
            if rank():
                return
            estimate = adiabat.estimate(settings, watch=watch)
            answer(estimate.to_json() if as_json else estimate.told())
            return
        result = adiabat.train(settings, resume=resume, command=command_line(), watch=watch)
    if result is None:
        return
    show_result(result)
    answer(result.to_json() if as_json else str(settings.job.out))
