"""`adiabat.make`: known data sets from their published files."""

from collections.abc import Callable, Mapping
from pathlib import Path

from adiabat.config.dataset_settings import (
    ArxivSettings,
    HotpotqaSettings,
    MsmarcoSettings,
    SquadSettings,
    XnliSettings,
)
from adiabat.config.section import Section
from adiabat.core.errors import ConfigError
from adiabat.core.progress import SILENT, Watch
from adiabat.datasets.arxiv import make_arxiv
from adiabat.datasets.hotpotqa import make_hotpotqa
from adiabat.datasets.msmarco import make_msmarco
from adiabat.datasets.squad import make_squad
from adiabat.datasets.writer import DatasetSummary
from adiabat.datasets.xnli import make_xnli
from adiabat.runs.output_dir import require_free

MAKERS: Mapping[str, tuple[type[Section], Callable[..., DatasetSummary]]] = {
    "msmarco": (MsmarcoSettings, make_msmarco),
    "squad": (SquadSettings, make_squad),
    "hotpotqa": (HotpotqaSettings, make_hotpotqa),
    "xnli": (XnliSettings, make_xnli),
    "arxiv-negatives": (ArxivSettings, make_arxiv),
}
"""What can be made: its settings, and who makes it."""


def make(kind: str, source: str | Path, out: str | Path, *, settings: Section | None = None, watch: Watch = SILENT) -> DatasetSummary:
    """Make a known data set from the files that its publisher offers.

    Args:
        kind: A key of `MAKERS`.
        source: The publisher's file or folder; see the maker's module.
        out: A new directory.
        settings: Of the kind; None takes the defaults.
        watch: Whom to tell.

    Returns:
        What was written.

    Raises:
        AdiabatError: If anything the user gave is wrong; then nothing is written.
    """
    kind_of_settings, maker = maker_of(kind)
    require_free(Path(out), resume=False)
    return maker(Path(source), Path(out), settings or kind_of_settings(), watch=watch)


def maker_of(kind: str) -> tuple[type[Section], Callable[..., DatasetSummary]]:
    """Who makes a data set, and under which settings.

    Args:
        kind: A key of `MAKERS`.

    Returns:
        Settings and maker.

    Raises:
        ConfigError: If nobody does.
    """
    if kind not in MAKERS:
        raise ConfigError(f"KIND must be one of {', '.join(MAKERS)}, got {kind}; choose one")
    return MAKERS[kind]
