"""The verb that shows what other verbs may be told."""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated

import typer

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
    "compare-runs": "tasks:CompareRunsSettings",
    "search": "shared:SearchSettings",
    "inspect": "dataset_settings:InspectSettings",
    "mine": "dataset_settings:MineSettings",
    "compare data": "comparison_settings:CompareDataSettings",
    "compare backbones": "comparison_settings:CompareBackbonesSettings",
    "space": "tasks:SpaceSettings",
    "sweep": "sweeps:SweepSettings",
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
"""Module and class of a verb's settings, by what follows ``adiabat``; a suite is what ``adiabat evaluate --suite`` reads."""


def kind_of(verb: str) -> type[Section]:
    """The class of a verb's settings, loaded when it is asked for."""
    module, _, kind = KINDS[verb].partition(":")
    found: type[Section] = getattr(import_module(f"adiabat.config.{module}"), kind)
    return found


def settings(
    verb: Annotated[list[str], typer.Argument(metavar="VERB", help="Such as tune, `distill fit`, or suite: what --suite reads.")],
) -> None:
    """Print everything that a verb may be told, as a TOML file for --config: keys, defaults, what they take and mean."""
    name = " ".join(verb)
    if name not in KINDS:
        raise ConfigError(f"VERB must be one of {', '.join(KINDS)}, got {name}; choose one")
    print(template(kind_of(name)), end="")
