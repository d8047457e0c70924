"""The verbs that make small students of a teacher: distil static."""

from pathlib import Path
from typing import Annotated

import typer

from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, answer, command_line, settings_of, short_for
from adiabat.config import DistilStaticSettings
from adiabat.console import say, watching

distil = typer.Typer(no_args_is_help=True, help="Make small students of a teacher.")


@distil.callback()
def _distil() -> None:
    """A callback keeps the name of a single verb."""


@distil.command()
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
    texts = {"static.pooling": pooling, "static.weighting": weighting, "static.corpus": corpus, "static.vocabulary": vocabulary}
    short = short_for(texts, {"static.dims": dims, "static.sif": sif})
    settings = settings_of(DistilStaticSettings, config, [*(assignments or ()), *short], seed=seed, device=device)
    from adiabat import api

    with watching() as watch:
        found = api.distil_static(teacher, out, settings=settings, command=command_line(), watch=watch)
    told = f"{found.tokens:,} tokens of {found.dims} numbers, {found.kept:.1%} of the variance, {found.size / 2**20:.1f} MiB"
    say(f"{told}, in {found.seconds:.1f} s")
    answer(found.to_json() if as_json else str(out))
