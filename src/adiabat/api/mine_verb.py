"""`adiabat.mine`: hard negatives."""

from functools import partial
from pathlib import Path

from adiabat.config.dataset_settings import (
    MineSettings,
)
from adiabat.core.progress import SILENT, Watch
from adiabat.mining.mine import Mining
from adiabat.mining.mine import mine as mine_negatives
from adiabat.models.model_names import load_with


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
