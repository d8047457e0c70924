"""Training and its data: train, mine, inspect; and distill static, fit, multilingual, pair, ablate."""

from pathlib import Path
from typing import Annotated

import typer

from adiabat.api.call import say
from adiabat.cli.options import (
    AsJson,
    Assignments,
    Config,
    Device,
    ExistOk,
    Resume,
    Seed,
    Split,
    answer,
    in_json,
    option,
    rank,
    settings_of,
    show,
    told_once,
    writing_output,
)
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.surroundings import console_size
from adiabat.core.text import amount, counted


def train(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="RUN.toml", help="Model, data, towers and loss; job.model and job.data are required."
        ),
    ],
    out: Annotated[
        Path | None, option("--out", "JOB", "Directory of the job (job.out); afterwards a MODEL.")
    ] = None,
    resume: Resume = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print parameters, FLOPs, memory and time, and train nothing.")
    ] = False,
    seconds: Annotated[
        str | None,
        option(
            "--budget-time",
            "TIME",
            "Time limit of the whole command, such as 90min or 8h (train.budget_seconds).",
        ),
    ] = None,
    budget: Annotated[
        str | None, option("--budget-flops", "N", "Training budget in FLOPs (train.budget_flops).")
    ] = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Train both towers of a dual encoder on pairs of texts."""
    from adiabat.config.dual_training import TrainSettings

    with told_once():
        numbers = {"train.budget_flops": budget, "train.budget_seconds": seconds}
        settings = settings_of(
            TrainSettings,
            config,
            assignments,
            seed=seed,
            device=device,
            texts={"job.out": out},
            numbers=numbers,
        )
        from adiabat.api.train_verb import check_train

        if dry_run and exist_ok:
            raise ConfigError("--exist-ok is about the job in --out, and --dry-run runs none; leave one out")
        if not exist_ok:
            check_train(settings, resume=resume, dry_run=dry_run)
    import adiabat

    if dry_run:
        if not rank():
            estimate = adiabat.estimate(settings=settings)
            answer(estimate.to_json() if as_json else estimate.summary())
        return
    result = adiabat.train(settings=settings, resume=resume, exist_ok=exist_ok or None)
    if result is not None:
        show(result, as_json=as_json, location=settings.job.out)


def mine(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Queries with positives.")],
    corpus: Annotated[
        str,
        typer.Argument(
            metavar="CORPUS", help="Documents to take negatives from, or a store that keeps its texts."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="File of the examples with negatives: .jsonl, .jsonl.gz or .jsonl.zst.",
        ),
    ],
    source: Annotated[
        str | None,
        option(
            "--source",
            None,
            "Source of candidates: bm25, dense or fused (the last two need --model). Default: bm25.",
        ),
    ] = None,
    model: Annotated[
        str | None, option("--model", "MODEL", "Model whose towers rank documents by vectors.")
    ] = None,
    store: Annotated[Path | None, option("--store", "STORE", "Vectors of CORPUS by that model.")] = None,
    index: Annotated[
        Path | None, option("--index", "DIR", "Directory that keeps the BM25 index for other runs.")
    ] = None,
    split: Split = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Find hard negatives for queries, and drop those that are likely answers."""
    from adiabat.config.dataset_settings import MineSettings

    settings = settings_of(
        MineSettings,
        config,
        assignments,
        seed=seed,
        device=device,
        split=split,
        texts={"mine.source": source},
    )
    import adiabat

    mined = adiabat.mine(
        data, corpus, out, model=model, store=store, index=index, settings=settings, exist_ok=exist_ok or None
    )
    for line in mined.lines:
        say(line)
    answer(mined.report if as_json else str(mined.out))


def inspect(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Examples, a corpus, a BEIR folder or a language grid.")
    ],
    model: Annotated[
        str | None,
        option(
            "--model", "MODEL", "Count tokens by the tokenizer of each tower. Default: words and characters."
        ),
    ] = None,
    store: Annotated[
        Path | None,
        option(
            "--store", "STORE", "Documents of --model: say which improvement of it the queries could show."
        ),
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

    profile = adiabat.inspect(data, model=model, store=store, settings=settings)
    if as_json:
        answer(profile.to_json())
    else:
        # On stdout, so that it can be saved or paged.
        with writing_output():
            Console(highlight=False, **console_size()).print(inspection_panel(profile))
    if profile.faults:
        raise DataError(
            f"{data} has {counted(len(profile.faults), 'kind')} of fault, listed above; "
            "other verbs refuse them; correct the data"
        )


distill = typer.Typer(no_args_is_help=True, help="Train small or multilingual students of a teacher.")

Teachers = Annotated[
    list[str] | None, option("--teacher", "MODEL", "Teacher (distill.teachers); repeatable.")
]
Tower = Annotated[
    str | None,
    option(
        "--tower", None, "Tower of the teacher to learn from, query or document; required if they differ."
    ),
]
Student = Annotated[
    str | None, option("--student", "MODEL", "Model to start from (distill.student); it has one tower.")
]
JobOut = Annotated[
    Path | None, option("--out", "JOB", "Directory of the job (distill.out); afterwards a MODEL.")
]


@distill.command()
def static(
    teacher: Annotated[str, typer.Argument(metavar="MODEL", help="Teacher.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the static model.")],
    tower: Tower = None,
    dims: Annotated[
        str | None, option("--dims", "N", "Width of a vector (static.reduction.dims). Default: 256.")
    ] = None,
    pooling: Annotated[
        str | None, option("--pooling", None, "Token state to take: mean, token, first or last.")
    ] = None,
    weighting: Annotated[
        str | None, option("--weighting", None, "Weights of tokens: none, zipf, sif or tfidf.")
    ] = None,
    sif: Annotated[
        str | None, option("--sif", "A", "a of the SIF weight a / (a + p). Default: 1e-4.")
    ] = None,
    corpus: Annotated[
        str | None, option("--corpus", None, "Corpus in which tokens are counted (static.weighting.corpus).")
    ] = None,
    vocabulary: Annotated[
        Path | None, option("--vocabulary", "FILE", "Words to add to the vocabulary, one per line.")
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Make a model with one vector per token: no GPU needed; model2vec and sentence-transformers load it."""
    from adiabat.config.distillation import DistillStaticSettings

    texts = {"static.pooling": pooling, "static.weighting": weighting, "static.vocabulary": vocabulary}
    texts |= {"static.weighting.corpus": corpus, "static.tower": tower}
    numbers = {"static.reduction.dims": dims, "static.weighting.a": sif}
    settings = settings_of(
        DistillStaticSettings, config, assignments, seed=seed, device=device, texts=texts, numbers=numbers
    )
    import adiabat

    result = adiabat.distill_static(teacher, out, settings=settings, exist_ok=exist_ok or None)
    size = (
        f"{result.tokens:,} tokens of {result.dims} numbers, {result.kept:.1%} "
        f"of the variance, {amount(result.size)}"
    )
    say(f"{size}, in {result.seconds:.1f} s")
    answer(in_json(result) if as_json else str(out))


@distill.command()
def fit(
    teachers: Teachers = None,
    student: Student = None,
    out: JobOut = None,
    tower: Tower = None,
    texts: Annotated[
        list[str] | None, option("--texts", "CORPUS", "Documents to train on (data.texts); repeatable.")
    ] = None,
    queries: Annotated[
        list[str] | None,
        option("--queries", "DATA", "Examples whose queries are trained on (data.queries); repeatable."),
    ] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Train a student to reproduce its teachers' vectors of your own texts."""
    from adiabat.config.distillation import FitSettings

    names = {
        "distill.student": student,
        "distill.out": out,
        "distill.teachers": teachers,
        "distill.tower": tower,
    }
    sources = {"data.texts": texts, "data.queries": queries}
    settings = settings_of(
        FitSettings, config, assignments, seed=seed, device=device, texts={**names, **sources}
    )
    import adiabat

    result = adiabat.distill_fit(settings=settings, resume=resume, exist_ok=exist_ok or None)
    show(result, as_json=as_json, location=settings.distill.out)


@distill.command()
def multilingual(
    teachers: Teachers = None,
    student: Student = None,
    out: JobOut = None,
    tower: Tower = None,
    parallel: Annotated[
        list[str] | None,
        option(
            "--parallel",
            "FILE",
            "Table with a text for each language, or two text files: FILE.en,FILE.de; repeatable.",
        ),
    ] = None,
    source: Annotated[
        str | None, option("--source", "en", "Language of the teachers' texts. Default: en.")
    ] = None,
    languages: Annotated[
        str | None, option("--languages", "de,fr", "Languages to learn. Default: all.")
    ] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Teach a student further languages: its vectors of translations approach the teachers' vectors of the
    texts.
    """
    from adiabat.config.distillation import MultilingualSettings

    names = {
        "distill.student": student,
        "distill.out": out,
        "distill.teachers": teachers,
        "distill.tower": tower,
    }
    learned = [name.strip() for name in (languages or "").split(",") if name.strip()]
    sources = {"data.source": source, "data.parallel": parallel, "data.languages": learned}
    settings = settings_of(
        MultilingualSettings, config, assignments, seed=seed, device=device, texts={**names, **sources}
    )
    import adiabat

    result = adiabat.distill_multilingual(settings=settings, resume=resume, exist_ok=exist_ok or None)
    show(result, as_json=as_json, location=settings.distill.out)


@distill.command()
def pair(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY_MODEL", help="Model of the query tower, such as a fitted static model."
        ),
    ],
    document: Annotated[
        str,
        typer.Argument(
            metavar="DOCUMENT_MODEL",
            help="Model of the document tower; its stores can be searched with the pair.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the pair, a MODEL.")],
    exist_ok: ExistOk = False,
) -> None:
    """Combine a small query tower with the document tower that made an index."""
    import adiabat

    towers = adiabat.distill_pair(query, document, out, exist_ok=exist_ok or None)
    sizes = [
        sum(weights.numel() for weights in tower.parameters()) for tower in (towers.query, towers.document)
    ]
    say(f"{sizes[0]:,} parameters embed queries, {sizes[1]:,} embed documents")
    answer(str(out))


@distill.command()
def ablate(
    teacher: Annotated[str, typer.Argument(metavar="MODEL", help="Teacher.")],
    tower: Tower = None,
    suite: Annotated[
        str | None, option("--suite", "SUITE", "TOML file of tasks, or a suite by name (ablate.suite).")
    ] = None,
    out: Annotated[
        Path | None, option("--out", "DIR", "Directory of models and result (ablate.out).")
    ] = None,
    texts: Annotated[
        list[str] | None, option("--texts", "CORPUS", "Texts for the step `fit` (ablate.texts); repeatable.")
    ] = None,
    queries: Annotated[
        list[str] | None, option("--queries", "DATA", "Examples whose queries are added; repeatable.")
    ] = None,
    pairs: Annotated[
        str | None, option("--pairs", "DATA", "Queries with documents, for the step `pairs` (ablate.pairs).")
    ] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Make a static model step by step, and measure each step on a suite."""
    from adiabat.config.distillation import AblateSettings

    files = {
        "static.tower": tower,
        "ablate.suite": suite,
        "ablate.out": out,
        "ablate.pairs": pairs,
        "ablate.texts": texts,
        "ablate.queries": queries,
    }
    settings = settings_of(AblateSettings, config, assignments, seed=seed, device=device, texts=files)
    import adiabat

    result = adiabat.distill_ablate(teacher, settings=settings, resume=resume, exist_ok=exist_ok or None)
    show(result, as_json=as_json, location=result.page)
