"""`adiabat.make`: known data sets from their published files."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from adiabat.api.arguments import PathLike, SettingsLike, path_of, settings_of
from adiabat.api.call import Progress, called
from adiabat.config import dataset_settings
from adiabat.config.section import Section
from adiabat.core.errors import ConfigError
from adiabat.datasets.writer import DatasetSummary
from adiabat.runs.output_dir import require_free

MAKERS: Mapping[str, tuple[type[Section], str]] = {
    "msmarco": (dataset_settings.MsmarcoSettings, "msmarco"),
    "squad": (dataset_settings.SquadSettings, "squad"),
    "hotpotqa": (dataset_settings.HotpotqaSettings, "hotpotqa"),
    "xnli": (dataset_settings.XnliSettings, "xnli"),
    "arxiv-negatives": (dataset_settings.ArxivSettings, "arxiv"),
}
"""Data set to its settings and to the module of `adiabat.datasets` that makes it."""


def make(
    kind: str, source: PathLike, out: PathLike, *, settings: SettingsLike = None, progress: Progress = None, **options: Any
) -> DatasetSummary:
    """Make a known data set from the files that its publisher offers.

    Args:
        kind: ``msmarco``, ``squad``, ``hotpotqa``, ``xnli`` or ``arxiv-negatives``.
        source: The publisher's file or folder.
        out: A new directory.
        settings: Settings of the kind, a TOML file or nested dicts; ``adiabat settings data squad`` lists them.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``seed=1``.

    Returns:
        Files and counts; other functions take it in place of the directory.

    Raises:
        AdiabatError: If the source or a setting is unusable; then nothing is written.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> made = adiabat.make("squad", "train-v1.1.json", out="squad")
        >>> made.documents
        2
    """
    kind_of_settings, module = maker_of(kind)
    chosen = settings_of(kind_of_settings, settings, options, section=module, function="make")
    folder = Path(path_of(out, "out"))
    require_free(folder, resume=False)
    maker = getattr(import_module(f"adiabat.datasets.{module}"), f"make_{module}")
    with called("make", progress) as call:
        summary: DatasetSummary = maker(Path(path_of(source, "source")), folder, chosen, watch=call.watch)
    return summary


def maker_of(kind: str) -> tuple[type[Section], str]:
    """Settings and module of a known data set."""
    if kind not in MAKERS:
        raise ConfigError(f"KIND must be one of {', '.join(MAKERS)}, got {kind}; choose one")
    return MAKERS[kind]
