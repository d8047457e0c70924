"""Data sets: looked at, and made from what others publish."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from adiabat.config.dataset_settings import (
    ArxivSettings,
    HotpotqaSettings,
    InspectSettings,
    MineSettings,
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
from adiabat.datasets.writer import Made
from adiabat.datasets.xnli import make_xnli
from adiabat.mining.mine import Mining
from adiabat.mining.mine import mine as mine_negatives
from adiabat.models.model_names import Model, load, load_with
from adiabat.profiling.profile import inspect as inspect_data
from adiabat.profiling.profile_record import Inspection
from adiabat.profiling.text_lengths import ModelTokens
from adiabat.runs.output_dir import require_free

MAKERS: Mapping[str, tuple[type[Section], Callable[..., Made]]] = {
    "msmarco": (MsmarcoSettings, make_msmarco),
    "squad": (SquadSettings, make_squad),
    "hotpotqa": (HotpotqaSettings, make_hotpotqa),
    "xnli": (XnliSettings, make_xnli),
    "arxiv-negatives": (ArxivSettings, make_arxiv),
}
"""What can be made: its settings, and who makes it."""


def inspect(data: str | Path, *, model: Model | None = None, settings: InspectSettings | None = None, watch: Watch = SILENT) -> Inspection:
    """Look at a data set: counts, lengths, duplicates, languages, topics and tags, and what is wrong with it.

    Args:
        data: Examples, a corpus, a BEIR folder or a language grid.
        model: Whose tokenizer counts tokens; None counts words and characters.
        settings: None takes the defaults.
        watch: Whom to tell.

    Returns:
        What was found, faults of single rows among it.

    Raises:
        AdiabatError: If the data cannot be read at all, or a setting has no effect.
    """
    settings = settings or InspectSettings()
    tokens = None if model is None else ModelTokens(load(model, settings=settings.encoder))
    return inspect_data(str(data), settings=settings, tokens=tokens, watch=watch)


def mine(
    data: str | Path,
    corpus: str | Path,
    out: str | Path,
    *,
    model: str | None = None,
    store: str | Path | None = None,
    index: str | Path | None = None,
    settings: MineSettings | None = None,
    command: str = "adiabat.mine(...)",
    watch: Watch = SILENT,
) -> Mining:
    """Find documents of a corpus that look relevant to queries and are not.

    Args:
        data: Queries with positives.
        corpus: Where negatives come from; a store that keeps its texts is one too.
        out: File of the examples with their negatives; statistics stand beside it.
        model: Whose query tower proposes, where `MineSection.source` is not ``bm25``.
        store: Vectors of the corpus by that model.
        index: Directory that keeps the corpus and its BM25 index for other runs; None keeps nothing.
        settings: None takes the defaults.
        command: For the statistics.
        watch: Whom to tell.

    Returns:
        Where files are, and what was kept and dropped.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or MineSettings()
    device = settings.run.device
    return mine_negatives(
        str(data),
        str(corpus),
        Path(out),
        load=partial(load_with, device=device),
        model=model,
        store=store,
        index=None if index is None else Path(index),
        settings=settings,
        command=command,
        watch=watch,
    )


def make(kind: str, source: str | Path, out: str | Path, *, settings: Section | None = None, watch: Watch = SILENT) -> Made:
    """Make a data set of the mission from the files that its publisher offers.

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


def maker_of(kind: str) -> tuple[type[Section], Callable[..., Made]]:
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
