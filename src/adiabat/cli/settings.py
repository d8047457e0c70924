"""The verb that shows what other verbs may be told."""

from collections.abc import Mapping
from typing import Annotated

import typer

from adiabat import config
from adiabat.config.template import template
from adiabat.errors import ConfigError

KINDS: Mapping[str, type[config.Section]] = {
    "embed": config.EmbedSettings,
    "tune": config.TuneSettings,
    "safe-rate": config.TuneSettings,
    "train": config.TrainSettings,
    "evaluate": config.EvaluateSettings,
    "suite": config.SuiteSettings,
    "compare-runs": config.CompareRunsSettings,
    "search": config.SearchSettings,
    "inspect": config.InspectSettings,
    "mine": config.MineSettings,
    "compare data": config.CompareDataSettings,
    "compare backbones": config.CompareBackbonesSettings,
    "space": config.SpaceSettings,
    "study": config.StudySettings,
    "sweep": config.SweepSettings,
    "plan": config.PlanSettings,
    "distil static": config.DistilStaticSettings,
    "distil fit": config.FitSettings,
    "distil multilingual": config.MultilingualSettings,
    "distil ablate": config.AblateSettings,
    "data arxiv-negatives": config.ArxivSettings,
    "data msmarco": config.MsmarcoSettings,
    "data squad": config.SquadSettings,
    "data hotpotqa": config.HotpotqaSettings,
    "data xnli": config.XnliSettings,
}
"""By what follows ``adiabat``; a suite is what ``adiabat evaluate --suite`` reads."""


def settings(
    verb: Annotated[list[str], typer.Argument(metavar="VERB", help="Such as tune, `distil fit`, or suite: what --suite reads.")],
) -> None:
    """Print everything that a verb may be told, as a TOML file for --config: keys, defaults, what they take and mean."""
    name = " ".join(verb)
    if name not in KINDS:
        raise ConfigError(f"VERB must be one of {', '.join(KINDS)}, got {name}; choose one")
    print(template(KINDS[name]), end="")
