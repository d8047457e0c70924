"""Verbs that measure and ask: evaluate, search, demo."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adiabat.cli.console import one_line, say, watching
from adiabat.cli.options import AsJson, Assignments, Config, Device, Seed, answer, command_line, settings_of, show_result, show_suite
from adiabat.core.errors import ConfigError

if TYPE_CHECKING:
    from adiabat.results.evaluation_result import Hit


def evaluate(
    out: Annotated[Path, typer.Option("--out", help="Directory for result.json and report.html.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL STORE DATA | MODEL",
            help="A model, vectors of its document tower, the target data set; with --suite any number of models, `bm25` among them.",
            show_default=False,
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="SUITE",
            help="Measure on the tasks of this TOML file, or of `mteb-eight`, which comes with adiabat (extra mteb).",
        ),
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Of the target data set.", show_default=False)] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="MODEL", help="Compare with this model.", show_default=False)
    ] = None,
    baseline_store: Annotated[
        list[Path] | None,
        typer.Option(
            "--baseline-store", metavar="STORE", help="The documents by the baseline's document tower, if it has its own; repeatable."
        ),
    ] = None,
    retain: Annotated[
        list[str] | None,
        typer.Option("--retain", metavar="STORE DATA", help="A data set that must not get worse; repeatable."),
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model, before and after, on its target and on what must not get worse; or any number of models on a suite of tasks."""
    from adiabat.config.shared import EvaluateSettings

    named = words or []
    if suite is not None:
        idle = {"--split": split, "--baseline-store": baseline_store, "--retain": retain, "--config": config}
        _refuse_idle(idle, "--suite")
        _evaluate_suite(named, suite, out, baseline, assignments, seed=seed, device=device, as_json=as_json)
        return
    if len(named) != 3:
        got = " ".join(named) or "neither"
        raise ConfigError(f"evaluate must be given MODEL STORE DATA, or --suite SUITE with models, got {got}; see adiabat evaluate --help")
    model, store, data = named
    settings = settings_of(EvaluateSettings, config, assignments, seed=seed, device=device)
    import adiabat

    with watching() as watch:
        result = adiabat.evaluate(
            model,
            store,
            data,
            baseline=baseline,
            baseline_stores=baseline_store or (),
            retain=_pairs(retain or ()),
            split=split,
            out=out,
            settings=settings,
            command=command_line(),
            watch=watch,
        )
    show_result(result)
    answer(result.to_json() if as_json else str(out / "report.html"))


def _refuse_idle(options: Mapping[str, object], beside: str) -> None:
    """Options that another one makes meaningless."""
    if given := [name for name, value in options.items() if value]:
        raise ConfigError(f"{', '.join(given)} must be left out with {beside}, where it has no effect; leave it out")


def _evaluate_suite(
    models: Sequence[str],
    suite: str,
    out: Path,
    baseline: str | None,
    assignments: list[str] | None,
    *,
    seed: str | None,
    device: str | None,
    as_json: bool,
) -> None:
    from adiabat.config.tasks import SuiteSettings, suite_file

    own = [] if baseline is None else [f"suite.baseline={json.dumps(baseline)}"]
    settings = settings_of(SuiteSettings, suite_file(suite), [*(assignments or ()), *own], seed=seed, device=device)
    import adiabat

    with watching() as watch:
        found = adiabat.evaluate_suite(models, settings, out=out, command=command_line(), watch=watch)
    show_suite(found, out, as_json=as_json)


def compare_runs(
    first: Annotated[
        Path, typer.Argument(metavar="A", help="Scores that an evaluation kept of one model, or a run in the format of TREC.")
    ],
    second: Annotated[Path, typer.Argument(metavar="B", help="Likewise; it is compared with A.")],
    qrels: Annotated[
        Path | None, typer.Option("--qrels", metavar="FILE", help="Judgements for runs in the format of TREC.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Directory for result.json, page and tables; left out, the table is printed alone.", show_default=False),
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models query by query from what was kept of them, without the models."""
    from adiabat.config.tasks import CompareRunsSettings

    settings = settings_of(CompareRunsSettings, config, assignments, seed=seed)
    import adiabat

    found = adiabat.compare_runs(first, second, qrels=qrels, out=out, settings=settings, command=command_line())
    # Of what was kept, they were told when it was measured; what is said of runs is new.
    for sentence in (note for task in found.tasks for note in task.notes if qrels is not None):
        say(f"note: {sentence}")
    show_suite(found, out, as_json=as_json)


def folded(arguments: Sequence[str]) -> list[str]:
    """Make ``--retain STORE DATA`` one value: typer knows no repeatable option of two, and NUL can stand in no argument.

    ``--verify``, which every verb has, goes before the verb.
    """
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*words, word, *rest]
        if word == "--verify":
            words.insert(0, word)
            continue
        if word == "--retain" or word.startswith("--retain="):
            pair = [word.removeprefix("--retain=")] if "=" in word else rest[:2]
            if len(pair) < 2 or any(one.startswith("--") for one in pair):
                got = " ".join(pair) or "nothing"
                raise ConfigError(f"--retain must be followed by two words, STORE and DATA, got {got}; write both")
            word, rest = "\0".join(pair), rest[2:]
            words.append("--retain")
        words.append(word)
    return words


def _pairs(folded: Sequence[str]) -> list[tuple[str, str]]:
    """What `_folded` made one, as two again."""
    pairs = [value.partition("\0") for value in folded]
    return [(store, data) for store, _, data in pairs]


def _count(text: str | int) -> int:
    """A number of things; typer's own conversion speaks of what it could not parse rather than of what is wanted."""
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
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="Whose query tower encodes the query.")],
    compare: Annotated[
        list[str] | None, typer.Option("--compare", metavar="MODEL", help="Show this model's results too; repeatable.", show_default=False)
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", parser=_count, help="Results wanted.")] = 10,
    config: Config = None,
    assignments: Assignments = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Ask a store a question, through one query tower or several."""
    from adiabat.config.shared import SearchSettings

    settings = settings_of(SearchSettings, config, assignments, device=device)
    from dataclasses import asdict

    import adiabat

    found = {name: adiabat.search(store, query, model=name, k=k, settings=settings) for name in (model, *(compare or ()))}
    if as_json:
        answer(
            {
                name: [{key: value for key, value in asdict(hit).items() if key != "relevant"} for hit in hits]
                for name, hits in found.items()
            }
        )
    else:
        _show_hits(found)


def _show_hits(found: "dict[str, list[Hit]]") -> None:
    from adiabat.core.text import IN_WORDS, cut

    for name, hits in found.items():
        ranking = [IN_WORDS[hit.similarity] for hit in hits[:1] if hit.similarity]
        print(", by ".join([one_line(name), *ranking]))
        if not hits:
            print("nothing: the model knows no token of the query")
        for place, hit in enumerate(hits, start=1):
            print(f"{place:3d}  {hit.score:.4f}  {one_line(hit.doc_id)}  {cut(one_line(hit.text), limit=120)}")


def demo(
    out: Annotated[Path, typer.Option("--out", help="Directory for the demo's files.")] = Path("runs/demo"),
    as_json: AsJson = False,
) -> None:
    """Tune the embedded model on embedded papers, and show what got better and that nothing else got worse."""
    from adiabat.api.demo_run import run_demo

    with watching() as watch:
        result = run_demo(out, command=command_line(), watch=watch)
    show_result(result)
    answer(result.to_json() if as_json else str(out / "report.html"))
