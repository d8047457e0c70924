"""Results: compare, space. Data and help: data, settings, demo."""

from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from adiabat.api.call import say
from adiabat.cli.options import (
    AsJson,
    Assignments,
    Baseline,
    Config,
    Device,
    ExistOk,
    Seed,
    Split,
    answer,
    option,
    settings_of,
    show,
    writing_output,
)
from adiabat.config.section import Section
from adiabat.core.errors import ConfigError


def compare(
    first: Annotated[
        Path, typer.Argument(metavar="A", help="Baseline: saved scores of one model, or a TREC run.")
    ],
    second: Annotated[
        Path, typer.Argument(metavar="B", help="Model to compare with A: saved scores, or a TREC run.")
    ],
    qrels: Annotated[Path | None, option("--qrels", "FILE", "Judgements for TREC runs.")] = None,
    out: Annotated[
        Path | None,
        option(
            "--out", "DIR", "Directory for result.json, page and tables. Default: only the table is printed."
        ),
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Compare two models query by query from their saved scores, without loading the models."""
    from adiabat.config.tasks import CompareSettings

    settings = settings_of(CompareSettings, config, assignments, seed=seed)
    import adiabat

    result = adiabat.compare(
        first, second, qrels=qrels, out=out, settings=settings, exist_ok=exist_ok or None
    )
    # Notes on saved scores were printed when they were measured; those on TREC runs are new.
    for sentence in (note for task in result.tasks for note in task.notes if qrels is not None):
        say(f"note: {sentence}")
    show(result, as_json=as_json, location=None if out is None else result.page)


def upgrade(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Stores, jobs, results, folders of them, or settings files."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be converted, and write nothing.")
    ] = False,
    backup: Annotated[
        bool, typer.Option("--backup/--no-backup", help="Keep the former files, as NAME.before-upgrade.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Convert files of earlier versions of adiabat in place; vectors stay as they are."""
    import adiabat

    done = adiabat.upgrade(paths, dry_run=dry_run, backup=backup)
    answer(done.to_json() if as_json else done.summary())


def space(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model under test; its query tower encodes the queries.")
    ],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors of its document tower.")],
    queries: Annotated[str, typer.Argument(metavar="QUERIES", help="Queries with positives in the store.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Directory for result.json, report.html, table.csv and table.md."
        ),
    ],
    split: Split = None,
    baseline: Baseline = None,
    baseline_store: Annotated[
        Path | None,
        option(
            "--baseline-store", "STORE", "Document vectors of the baseline, if its document tower differs."
        ),
    ] = None,
    draw_map: Annotated[
        bool, typer.Option("--map", help="Draw a map of both towers (space.map=true; extra maps).")
    ] = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Measure how query and document vectors are spread: separation, uniformity, alignment and anisotropy."""
    from adiabat.config.tasks import SpaceSettings

    numbers = {"space.map": "true" if draw_map else None}
    settings = settings_of(
        SpaceSettings, config, assignments, seed=seed, device=device, split=split, numbers=numbers
    )
    import adiabat

    result = adiabat.space(
        model,
        store,
        queries,
        baseline=baseline,
        baseline_store=baseline_store,
        out=out,
        settings=settings,
        exist_ok=exist_ok or None,
    )
    show(result, as_json=as_json, location=result.page)


KINDS: Mapping[str, str] = {
    "embed": "shared:EmbedSettings",
    "advise": "shared:AdviseSettings",
    "tune": "tuning:TuneSettings",
    "safe-rate": "tuning:TuneSettings",
    "train": "dual_training:TrainSettings",
    "evaluate": "shared:EvaluateSettings",
    "suite": "tasks:SuiteSettings",
    "compare": "tasks:CompareSettings",
    "search": "shared:SearchSettings",
    "inspect": "dataset_settings:InspectSettings",
    "mine": "dataset_settings:MineSettings",
    "space": "tasks:SpaceSettings",
    "sweep tune": "sweeps:TuneSweepSettings",
    "sweep train": "sweeps:TrainSweepSettings",
    "scaling": "budgets:ScalingSettings",
    "plan": "budgets:PlanSettings",
    "distill static": "distillation:DistillStaticSettings",
    "distill fit": "distillation:FitSettings",
    "distill multilingual": "distillation:MultilingualSettings",
    "distill ablate": "distillation:AblateSettings",
    "data arxiv-negatives": "dataset_settings:ArxivSettings",
    "data msmarco": "dataset_settings:MsmarcoSettings",
    "data squad": "dataset_settings:SquadSettings",
    "data hotpotqa": "dataset_settings:HotpotqaSettings",
    "data xnli": "dataset_settings:XnliSettings",
}
"""Verb to the module and class of its settings; `suite` is what ``adiabat evaluate --suite`` reads."""


def kind_of(verb: str) -> type[Section]:
    """The class of a verb's settings."""
    module, _, kind = KINDS[verb].partition(":")
    section: type[Section] = getattr(import_module(f"adiabat.config.{module}"), kind)
    return section


def settings(
    verb: Annotated[
        list[str],
        typer.Argument(
            metavar="VERB", help="A verb, such as tune or `distill fit`; or suite, for the file of --suite."
        ),
    ],
) -> None:
    """Print all settings of a verb as a TOML file for --config: keys, defaults, allowed values and
    meaning.
    """
    name = " ".join(verb)
    if name not in KINDS:
        raise ConfigError(f"VERB must be one of {', '.join(KINDS)}, got {name}; choose one")
    from adiabat.config.settings_template import template

    with writing_output():
        print(template(kind_of(name)), end="")


def data(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="msmarco, squad, hotpotqa, xnli or arxiv-negatives.")
    ],
    source: Annotated[Path, typer.Argument(metavar="IN", help="The publisher's file or folder.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new directory.")],
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    exist_ok: ExistOk = False,
    as_json: AsJson = False,
) -> None:
    """Make a data set of the literature from its official files."""
    import adiabat
    from adiabat.api.data_verbs import maker_of

    settings = settings_of(maker_of(kind)[0], config, assignments, seed=seed)
    summary = adiabat.make(kind, source, out, settings=settings, exist_ok=exist_ok or None)
    for sentence in summary.notes:
        say(sentence)
    for name, rows in summary.examples.items():
        say(f"{name}: {rows:,}")
    if summary.documents:
        say(f"documents: {summary.documents:,}")
    answer({**asdict(summary), "folder": str(summary.folder)} if as_json else str(summary.folder))


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the demo's files.")] = Path(
        "runs/demo"
    ),
    as_json: AsJson = False,
) -> None:
    """Tune the embedded model on embedded papers, and show that the target got better and the rest did not
    get worse.
    """
    from adiabat.api.tune_verb import run_demo

    result = run_demo(out)
    show(result, as_json=as_json, location=out / "report.html")
