"""Students of a teacher: distill static, fit, multilingual, pair, ablate."""

from pathlib import Path
from typing import Annotated

import typer

from adiabat.api.progress_display import say
from adiabat.cli.options import AsJson, Assignments, Config, Device, Resume, Seed, answer, settings_of, show

distill = typer.Typer(no_args_is_help=True, help="Train small or multilingual students of a teacher.")

Teachers = Annotated[list[str] | None, typer.Option("--teacher", metavar="MODEL", help="Teacher (distill.teachers); repeatable.")]
Student = Annotated[
    str | None, typer.Option("--student", metavar="MODEL", help="Model to start from (distill.student).", show_default=False)
]
JobOut = Annotated[
    Path | None, typer.Option("--out", metavar="JOB", help="Directory of the job (distill.out); afterwards a MODEL.", show_default=False)
]


@distill.command()
def static(
    teacher: Annotated[str, typer.Argument(metavar="MODEL", help="Teacher; its document tower is distilled.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the static model.")],
    dims: Annotated[
        str | None, typer.Option("--dims", metavar="N", help="Width of a vector (static.dims). Default: 256.", show_default=False)
    ] = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", help="State of a token that is taken: mean, token, first or last.", show_default=False)
    ] = None,
    weighting: Annotated[
        str | None, typer.Option("--weighting", help="Weights of tokens: none, zipf, sif or tfidf.", show_default=False)
    ] = None,
    sif: Annotated[
        str | None, typer.Option("--sif", metavar="A", help="a of the SIF weight a / (a + p). Default: 1e-4.", show_default=False)
    ] = None,
    corpus: Annotated[
        str | None, typer.Option("--corpus", help="Corpus in which tokens are counted (static.corpus).", show_default=False)
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option("--vocabulary", metavar="FILE", help="Words to add to the vocabulary, one per line.", show_default=False)
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Make a model with one vector per token: no GPU needed; model2vec and sentence-transformers load it."""
    from adiabat.config.distillation import DistillStaticSettings

    texts = {"static.pooling": pooling, "static.weighting": weighting, "static.corpus": corpus, "static.vocabulary": vocabulary}
    numbers = {"static.dims": dims, "static.sif": sif}
    settings = settings_of(DistillStaticSettings, config, assignments, seed=seed, device=device, texts=texts, numbers=numbers)
    import adiabat
    from adiabat.core.text import amount

    result = adiabat.distill_static(teacher, out, settings=settings)
    size = f"{result.tokens:,} tokens of {result.dims} numbers, {result.kept:.1%} of the variance, {amount(result.size)}"
    say(f"{size}, in {result.seconds:.1f} s")
    answer(result.to_json() if as_json else str(out))


@distill.command()
def fit(
    teachers: Teachers = None,
    student: Student = None,
    out: JobOut = None,
    texts: Annotated[
        list[str] | None, typer.Option("--texts", metavar="CORPUS", help="Documents to train on (lessons.texts); repeatable.")
    ] = None,
    queries: Annotated[
        list[str] | None,
        typer.Option("--queries", metavar="DATA", help="Examples whose queries are trained on (lessons.queries); repeatable."),
    ] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train a student to reproduce its teachers' vectors of your own texts."""
    from adiabat.config.distillation import FitSettings

    names = {"distill.student": student, "distill.out": out, "distill.teachers": teachers}
    sources = {"lessons.texts": texts, "lessons.queries": queries}
    settings = settings_of(FitSettings, config, assignments, seed=seed, device=device, texts={**names, **sources})
    import adiabat

    result = adiabat.distill_fit(settings=settings, resume=resume)
    show(result, as_json=as_json, location=settings.distill.out)


@distill.command()
def multilingual(
    teachers: Teachers = None,
    student: Student = None,
    out: JobOut = None,
    parallel: Annotated[
        list[str] | None,
        typer.Option(
            "--parallel", metavar="FILE", help="Table with a text for each language, or two text files: FILE.en,FILE.de; repeatable."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="en", help="Language that the teachers know. Default: en.", show_default=False)
    ] = None,
    languages: Annotated[
        str | None, typer.Option("--languages", metavar="de,fr", help="Languages to learn. Default: all.", show_default=False)
    ] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Teach a student further languages: its vectors of translations approach the teachers' vectors of the texts."""
    from adiabat.config.distillation import MultilingualSettings

    texts = {
        "distill.student": student,
        "distill.out": out,
        "distill.teachers": teachers,
        "lessons.source": source,
        "lessons.parallel": parallel,
        "lessons.languages": [name.strip() for name in (languages or "").split(",") if name.strip()],
    }
    settings = settings_of(MultilingualSettings, config, assignments, seed=seed, device=device, texts=texts)
    import adiabat

    result = adiabat.distill_multilingual(settings=settings, resume=resume)
    show(result, as_json=as_json, location=settings.distill.out)


@distill.command()
def pair(
    query: Annotated[str, typer.Argument(metavar="QUERY_MODEL", help="Model whose query tower is taken, such as a fitted static model.")],
    document: Annotated[
        str, typer.Argument(metavar="DOCUMENT_MODEL", help="Model whose document tower is taken; its stores serve the pair.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the pair, a MODEL.")],
) -> None:
    """Combine a small query tower with the document tower that made an index."""
    import adiabat

    towers = adiabat.distill_pair(query, document, out)
    sizes = [sum(weights.numel() for weights in tower.parameters()) for tower in (towers.query, towers.document)]
    say(f"{sizes[0]:,} parameters embed queries, {sizes[1]:,} embed documents")
    answer(str(out))


@distill.command()
def ablate(
    teacher: Annotated[str, typer.Argument(metavar="MODEL", help="Teacher.")],
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="SUITE", help="TOML file of tasks, or a suite by name (ablate.suite).", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Directory of models and result (ablate.out).", show_default=False)
    ] = None,
    texts: Annotated[
        list[str] | None, typer.Option("--texts", metavar="CORPUS", help="Texts for the step `fit` (ablate.texts); repeatable.")
    ] = None,
    queries: Annotated[
        list[str] | None, typer.Option("--queries", metavar="DATA", help="Examples whose queries are added; repeatable.")
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option("--pairs", metavar="DATA", help="Queries with documents, for the step `pairs` (ablate.pairs).", show_default=False),
    ] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Make a static model step by step, and measure each step on a suite."""
    from adiabat.config.distillation import AblateSettings

    files = {"ablate.suite": suite, "ablate.out": out, "ablate.pairs": pairs, "ablate.texts": texts, "ablate.queries": queries}
    settings = settings_of(AblateSettings, config, assignments, seed=seed, device=device, texts=files)
    import adiabat

    result = adiabat.distill_ablate(teacher, settings=settings, resume=resume)
    show(result, as_json=as_json, location=result.page)
