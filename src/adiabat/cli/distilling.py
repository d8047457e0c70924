"""The verbs that make students of a teacher: distill static, fit, multilingual, pair, ablate."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from adiabat.cli.console import say, watching
from adiabat.cli.options import (
    AsJson,
    Assignments,
    Config,
    Device,
    Seed,
    answer,
    command_line,
    settings_of,
    short_for,
    show_result,
    show_suite,
)

distill = typer.Typer(no_args_is_help=True, help="Make students of a teacher.")

Teachers = Annotated[list[str] | None, typer.Option("--teacher", metavar="MODEL", help="Who teaches; may be given several times.")]
Student = Annotated[str | None, typer.Option("--student", metavar="MODEL", help="Where training starts.", show_default=False)]
JobOut = Annotated[Path | None, typer.Option("--out", help="Directory of the job; afterwards a MODEL.", show_default=False)]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a job that was cut short.")]


@distill.command()
def static(
    teacher: Annotated[str, typer.Argument(metavar="MODEL", help="The teacher; its document tower is distilled.")],
    out: Annotated[Path, typer.Option("--out", help="Directory of the static model.")],
    dims: Annotated[str | None, typer.Option("--dims", metavar="N", help="Numbers per token: 256.", show_default=False)] = None,
    pooling: Annotated[str | None, typer.Option("--pooling", help="mean, token, first or last state.", show_default=False)] = None,
    weighting: Annotated[str | None, typer.Option("--weighting", help="none, zipf, sif or tfidf.", show_default=False)] = None,
    sif: Annotated[str | None, typer.Option("--sif", metavar="A", help="Of a / (a + p): 1e-4.", show_default=False)] = None,
    corpus: Annotated[str | None, typer.Option("--corpus", help="Texts in which tokens are counted.", show_default=False)] = None,
    vocabulary: Annotated[Path | None, typer.Option("--vocabulary", help="Words to add, one per line.", show_default=False)] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Make a model of one vector per token, which model2vec and sentence-transformers load and which needs no GPU."""
    from adiabat.config.distillation import DistillStaticSettings

    texts = {"static.pooling": pooling, "static.weighting": weighting, "static.corpus": corpus, "static.vocabulary": vocabulary}
    short = short_for(texts, {"static.dims": dims, "static.sif": sif})
    settings = settings_of(DistillStaticSettings, config, [*(assignments or ()), *short], seed=seed, device=device)
    import adiabat
    from adiabat.core.text import amount

    with watching() as watch:
        found = adiabat.distill_static(teacher, out, settings=settings, command=command_line(), watch=watch)
    told = f"{found.tokens:,} tokens of {found.dims} numbers, {found.kept:.1%} of the variance, {amount(found.size)}"
    say(f"{told}, in {found.seconds:.1f} s")
    answer(found.to_json() if as_json else str(out))


@distill.command()
def fit(
    teachers: Teachers = None,
    student: Student = None,
    out: JobOut = None,
    texts: Annotated[list[str] | None, typer.Option("--texts", metavar="CORPUS", help="Documents to learn from.")] = None,
    queries: Annotated[list[str] | None, typer.Option("--queries", metavar="DATA", help="Examples whose queries are learned from.")] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Bring a student's vectors of your own texts close to its teacher's."""
    from adiabat.config.distillation import FitSettings

    lists = {"distill.teachers": teachers, "lessons.texts": texts, "lessons.queries": queries}
    short = [*_listed(lists), *short_for({"distill.student": student, "distill.out": out})]
    settings = settings_of(FitSettings, config, [*(assignments or ()), *short], seed=seed, device=device)
    import adiabat

    with watching() as watch:
        result = adiabat.distill_fit(settings, resume=resume, command=command_line(), watch=watch)
    show_result(result)
    answer(result.to_json() if as_json else str(settings.distill.out))


@distill.command()
def multilingual(
    teachers: Teachers = None,
    student: Student = None,
    out: JobOut = None,
    parallel: Annotated[
        list[str] | None,
        typer.Option("--parallel", metavar="FILE", help="A table with a text for each language, or two text files: FILE.en,FILE.de."),
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="The language that the teacher knows: en.", show_default=False)] = None,
    languages: Annotated[
        str | None, typer.Option("--languages", metavar="de,fr", help="Those that are learned.", show_default=False)
    ] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Teach a student further languages: its vectors of translations come close to a teacher's of the texts."""
    from adiabat.config.distillation import MultilingualSettings

    lists = {
        "distill.teachers": teachers,
        "lessons.parallel": parallel,
        "lessons.languages": None if languages is None else [name.strip() for name in languages.split(",") if name.strip()],
    }
    short = [*_listed(lists), *short_for({"distill.student": student, "distill.out": out, "lessons.source": source})]
    settings = settings_of(MultilingualSettings, config, [*(assignments or ()), *short], seed=seed, device=device)
    import adiabat

    with watching() as watch:
        result = adiabat.distill_multilingual(settings, resume=resume, command=command_line(), watch=watch)
    show_result(result)
    answer(result.to_json() if as_json else str(settings.distill.out))


@distill.command()
def pair(
    query: Annotated[str, typer.Argument(metavar="QUERY_MODEL", help="Its query tower is taken, such as a fitted static model's.")],
    document: Annotated[str, typer.Argument(metavar="DOCUMENT_MODEL", help="Its document tower is taken; its stores serve the pair.")],
    out: Annotated[Path, typer.Option("--out", help="Directory of the pair, a MODEL.")],
) -> None:
    """Put a small query tower beside the document tower that made an index."""
    import adiabat

    made = adiabat.distill_pair(query, document, out)
    asking, answering = (sum(weights.numel() for weights in tower.parameters()) for tower in (made.query, made.document))
    say(f"{asking:,} parameters embed queries, {answering:,} embed documents")
    answer(str(out))


@distill.command()
def ablate(
    teacher: Annotated[str, typer.Argument(metavar="MODEL", help="The teacher.")],
    suite: Annotated[str | None, typer.Option("--suite", help="A TOML file of tasks, or a suite by name.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Directory of the models and the result.", show_default=False)] = None,
    texts: Annotated[list[str] | None, typer.Option("--texts", metavar="CORPUS", help="Learned from towards the teacher.")] = None,
    queries: Annotated[list[str] | None, typer.Option("--queries", metavar="DATA", help="Examples whose queries are, too.")] = None,
    pairs: Annotated[str | None, typer.Option("--pairs", metavar="DATA", help="Queries with documents.", show_default=False)] = None,
    resume: Resume = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Make a static model step by step, and measure what each step brings."""
    from adiabat.config.distillation import AblateSettings

    short = [*_listed({"ablate.texts": texts, "ablate.queries": queries})]
    short += short_for({"ablate.suite": suite, "ablate.out": out, "ablate.pairs": pairs})
    settings = settings_of(AblateSettings, config, [*(assignments or ()), *short], seed=seed, device=device)
    import adiabat

    with watching() as watch:
        found = adiabat.distill_ablate(teacher, settings, resume=resume, command=command_line(), watch=watch)
    show_suite(found, Path(str(settings.ablate.out)) / "suite", as_json=as_json)


def _listed(lists: Mapping[str, Sequence[str] | None]) -> list[str]:
    """What was typed of options that are lists, as ``--set`` would say it."""
    return [f"{key}={json.dumps(list(values))}" for key, values in lists.items() if values]
