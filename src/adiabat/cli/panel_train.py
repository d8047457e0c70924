"""Training and its data: train, mine, inspect; `panel_distill` has distill."""

from pathlib import Path
from typing import Annotated

import typer

from adiabat.api.progress_display import say
from adiabat.cli.options import AsJson, Assignments, Config, Device, Resume, Seed, Split, answer, rank, settings_of, show, told_once
from adiabat.core.errors import DataError
from adiabat.core.text import counted


def train(
    config: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Model, data, towers and loss; job.model and job.data are required.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="JOB", help="Directory of the job (job.out); afterwards a MODEL.", show_default=False)
    ] = None,
    resume: Resume = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print parameters, FLOPs, memory and time, and train nothing.")] = False,
    seconds: Annotated[
        str | None,
        typer.Option(
            "--budget-time", metavar="TIME", help="Training time, such as 90min or 8h (train.budget_seconds).", show_default=False
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget-flops", metavar="N", help="Training budget in FLOPs (train.budget_flops).", show_default=False)
    ] = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train both towers of a dual encoder on pairs of texts."""
    from adiabat.config.dual_training import TrainSettings

    with told_once():
        numbers = {"train.budget_flops": budget, "train.budget_seconds": seconds}
        settings = settings_of(TrainSettings, config, assignments, seed=seed, device=device, texts={"job.out": out}, numbers=numbers)
        from adiabat.api.preflight import check_train

        check_train(settings, resume=resume, dry_run=dry_run)
    # Imported after the checks: torch takes seconds to load.
    import adiabat

    if dry_run:
        if not rank():
            estimate = adiabat.estimate(settings=settings)
            answer(estimate.to_json() if as_json else estimate.summary())
        return
    result = adiabat.train(settings=settings, resume=resume)
    if result is not None:
        show(result, as_json=as_json, location=settings.job.out)


def mine(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Queries with positives.")],
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="Documents to take negatives from, or a store that keeps its texts.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File of the examples with negatives: .jsonl, .jsonl.gz or .jsonl.zst.")
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--source", help="Ranking that proposes: bm25, dense or fused (the last two need --model). Default: bm25.", show_default=False
        ),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Model that ranks by vectors.", show_default=False)] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="STORE", help="Vectors of CORPUS by that model.", show_default=False)
    ] = None,
    index: Annotated[
        Path | None, typer.Option("--index", metavar="DIR", help="Directory that keeps the BM25 index for other runs.", show_default=False)
    ] = None,
    split: Split = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Find hard negatives for queries, and drop those that are likely answers."""
    from adiabat.config.dataset_settings import MineSettings

    settings = settings_of(MineSettings, config, assignments, seed=seed, device=device, split=split, texts={"mine.source": source})
    import adiabat

    mined = adiabat.mine(data, corpus, out, model=model, store=store, index=index, settings=settings)
    for line in mined.lines:
        say(line)
    answer(mined.report if as_json else str(mined.out))


def inspect(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Examples, a corpus, a BEIR folder or a language grid.")],
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Count tokens by its tokenizer. Default: words and characters.", show_default=False),
    ] = None,
    split: Split = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Profile a data set: lengths, duplicates, languages, topics, examples, and faults by line."""
    from adiabat.config.dataset_settings import InspectSettings

    settings = settings_of(InspectSettings, config, assignments, seed=seed, split=split)
    from rich.console import Console

    import adiabat
    from adiabat.profiling.profile_view import inspection_panel

    profile = adiabat.inspect(data, model=model, settings=settings)
    if as_json:
        answer(profile.to_json())
    else:
        # On stdout, so that it can be saved or paged.
        Console(highlight=False).print(inspection_panel(profile))
    if profile.faults:
        raise DataError(f"{data} has {counted(len(profile.faults), 'kind')} of fault, listed above; other verbs need it without; mend it")
