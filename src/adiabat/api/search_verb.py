"""`adiabat.search`: the nearest documents of a store."""

from pathlib import Path

import numpy as np

from adiabat.config.shared import SearchSettings
from adiabat.core.errors import DataError
from adiabat.models.model_names import Model, load
from adiabat.results.evaluation_result import Hit
from adiabat.store.build import refuse_swapped
from adiabat.store.search import hits_of
from adiabat.store.search import search as search_store
from adiabat.store.vector_store import Store


def search(store: str | Path, query: str, *, model: Model, k: int = 10, settings: SearchSettings | None = None) -> list[Hit]:
    """Ask a store.

    Args:
        store: Document vectors.
        query: One text.
        model: Whose query tower encodes it.
        k: Results wanted, > 0.
        settings: None takes the defaults.

    Returns:
        Best first, by the similarity that the model states, which each hit names. Nothing for a query of which a static model knows no
        token.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or SearchSettings()
    _require_text(query)
    refuse_swapped(store, query, order="STORE QUERY")
    opened = Store.open(store)
    towers = load(model, settings=settings.encoder, device=settings.run.device)
    opened.require_encoder(towers.fingerprint("document"), who=towers.name)
    hits = search_store(opened, towers.encode([query], side="query", precision="fp32"), k, similarity=towers.ranks_by)
    return hits_of(opened, hits, 0, np.empty(0, dtype=np.int64), similarity=towers.ranks_by)


def _require_text(query: str) -> None:
    """Refuse what a tokenizer could not read: nothing, or bytes of a command line that are no UTF-8."""
    if not query.strip():
        raise DataError("QUERY must hold text, got an empty one; ask something")
    try:
        query.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise DataError(f"QUERY must be UTF-8 text, got another byte at character {fault.start + 1}; correct it") from fault
