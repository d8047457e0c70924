"""Data and help: data, settings, demo."""

from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from adiabat.api.progress_display import say
from adiabat.cli.options import AsJson, Assignments, Config, Seed, answer, settings_of, show
from adiabat.config.section import Section
from adiabat.config.settings_template import template
from adiabat.core.errors import ConfigError

KINDS: Mapping[str, str] = {
    "embed": "shared:EmbedSettings",
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
        list[str], typer.Argument(metavar="VERB", help="A verb, such as tune or `distill fit`; or suite, for the file of --suite.")
    ],
) -> None:
    """Print all settings of a verb as a TOML file for --config: keys, defaults, allowed values and meaning."""
    name = " ".join(verb)
    if name not in KINDS:
        raise ConfigError(f"VERB must be one of {', '.join(KINDS)}, got {name}; choose one")
    print(template(kind_of(name)), end="")


def data(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="msmarco, squad, hotpotqa, xnli or arxiv-negatives.")],
    source: Annotated[Path, typer.Argument(metavar="IN", help="The publisher's file or folder.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new directory.")],
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Make a data set of the literature from its official files."""
    import adiabat
    from adiabat.api.data_verb import maker_of

    settings = settings_of(maker_of(kind)[0], config, assignments, seed=seed)
    summary = adiabat.make(kind, source, out, settings=settings)
    for sentence in summary.notes:
        say(sentence)
    for name, rows in summary.examples.items():
        say(f"{name}: {rows:,}")
    if summary.documents:
        say(f"documents: {summary.documents:,}")
    answer({**asdict(summary), "folder": str(summary.folder)} if as_json else str(summary.folder))


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the demo's files.")] = Path("runs/demo"),
    as_json: AsJson = False,
) -> None:
    """Tune the embedded model on embedded papers, and show that the target got better and the rest did not get worse."""
    from adiabat.api.demo_run import run_demo

    result = run_demo(out)
    show(result, as_json=as_json, location=out / "report.html")
