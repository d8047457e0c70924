"""Verbs about data: inspect, mine, data."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from adiabat.cli.console import say, watching
from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, answer, command_line, settings_of, short_for
from adiabat.core.errors import DataError
from adiabat.core.text import counted

Inspected = Annotated[str, typer.Argument(metavar="DATA", help="Examples, a corpus, a BEIR folder or a language grid.")]


def inspect(
    data: Inspected,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Count tokens with its tokenizer.", show_default=False)
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Short for --set data.split=NAME.", show_default=False)] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Say what a data set holds: lengths, duplicates, languages, topics, examples, and what is wrong with it."""
    from adiabat.config.dataset_settings import InspectSettings

    settings = settings_of(InspectSettings, config, assignments, seed=seed, split=split)
    from rich.console import Console

    import adiabat
    from adiabat.profiling.profile_view import inspection_panel

    with watching() as watch:
        found = adiabat.inspect(data, model=model, settings=settings, watch=watch)
    if as_json:
        answer(found.to_json())
    else:
        # The page is what was asked for, so that it can be kept or paged.
        Console(highlight=False).print(inspection_panel(found))
    if found.faults:
        kinds = counted(len(found.faults), "kind")
        raise DataError(
            f"{data} must be free of faults for other verbs to take it, got {kinds} of fault, told among what was found; mend it"
        )


def mine(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Queries with positives.")],
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="Where negatives come from; a store that keeps its texts will do.")],
    out: Annotated[Path, typer.Option("--out", help="File of the examples with their negatives: .jsonl, .jsonl.gz or .jsonl.zst.")],
    source: Annotated[
        str | None, typer.Option("--source", help="Who proposes: bm25, or with a model dense or fused.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Whose query tower proposes.", show_default=False)] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="STORE", help="Vectors of CORPUS by that model.", show_default=False)
    ] = None,
    index: Annotated[Path | None, typer.Option("--index", help="Keep the BM25 index here for other runs.", show_default=False)] = None,
    split: Annotated[str | None, typer.Option("--split", help="Short for --set data.split=NAME.", show_default=False)] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Find hard negatives for queries, and leave out those that are likely to be answers."""
    from adiabat.config.dataset_settings import MineSettings

    assignments = [*(assignments or ()), *short_for({"mine.source": source})]
    settings = settings_of(MineSettings, config, assignments, seed=seed, device=device, split=split)
    import adiabat

    with watching() as watch:
        found = adiabat.mine(
            data, corpus, out, model=model, store=store, index=index, settings=settings, command=command_line(), watch=watch
        )
    for line in found.lines:
        say(line)
    answer(found.report if as_json else str(found.out))


def make(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="msmarco, squad, hotpotqa, xnli or arxiv-negatives.")],
    source: Annotated[Path, typer.Argument(metavar="IN", help="The publisher's file or folder.")],
    out: Annotated[Path, typer.Option("--out", help="A new directory.")],
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Make a data set of the literature from its official files."""
    import adiabat
    from adiabat.api.data_verb import maker_of

    settings = settings_of(maker_of(kind)[0], config, assignments, seed=seed)
    with watching() as watch:
        made = adiabat.make(kind, source, out, settings=settings, watch=watch)
    for sentence in made.notes:
        say(sentence)
    for name, rows in made.examples.items():
        say(f"{name}: {rows:,}")
    if made.documents:
        say(f"documents: {made.documents:,}")
    answer({**asdict(made), "folder": str(made.folder)} if as_json else str(made.folder))
