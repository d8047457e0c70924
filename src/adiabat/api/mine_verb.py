"""`adiabat.mine`: hard negatives."""

from functools import partial
from pathlib import Path
from typing import Any

from adiabat.api.arguments import Data, PathLike, SettingsLike, data_of, optional_path, path_of, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.dataset_settings import MineSettings
from adiabat.mining.mine import Mining
from adiabat.mining.mine import mine as mine_negatives
from adiabat.models.model_names import load_with


def mine(
    data: Data,
    corpus: Data,
    out: PathLike,
    *,
    model: PathLike | None = None,
    store: PathLike | None = None,
    index: PathLike | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Mining:
    """Find hard negatives: documents of a corpus that rank high for a query and are not among its answers.

    Args:
        data: Queries with positives.
        corpus: Where negatives come from; or a store that keeps its texts.
        out: File of the examples with their negatives: ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``; statistics lie beside it.
        model: Its query tower ranks, where ``source`` is ``dense`` or ``fused``.
        store: Vectors of the corpus by that model.
        index: Directory in which the BM25 index is kept for other runs; None keeps none.
        settings: `MineSettings`, a TOML file or nested dicts; ``adiabat settings mine`` lists them.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``source="dense"`` or ``relative_margin=0.05``.

    Returns:
        Files and counts; other functions take it in place of the mined file.

    Raises:
        AdiabatError: If data, corpus, model or settings are unusable.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> mined = adiabat.mine([{"query": "document 3", "pos": ["d3"]}], "corpus.jsonl", out="mined.jsonl")
        >>> mined.out.exists()
        True
    """
    chosen = settings_of(MineSettings, settings, options, section="mine", function="mine")
    with called("mine", progress) as call:
        return mine_negatives(
            data_of(data, "data"),
            data_of(corpus, "corpus"),
            Path(path_of(out, "out")),
            load=partial(load_with, device=chosen.run.device),
            model=None if model is None else path_of(model, "model"),
            store=optional_path(store, "store"),
            index=optional_path(index, "index"),
            settings=chosen,
            command=call.command,
            watch=call.watch,
        )
