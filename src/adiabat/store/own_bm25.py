"""The BM25 index of a store's own texts, in the store or, where that cannot be written, in the cache.

It is built once, and again once the texts have changed.
"""

import time
from pathlib import Path

import numpy as np

from adiabat.config.shared import FusionSection
from adiabat.core.disk import make_folder
from adiabat.core.errors import InUseError, StoreError
from adiabat.core.files import sole_writer, writing_to
from adiabat.core.progress import SILENT, Watch
from adiabat.core.surroundings import is_writable, user_cache
from adiabat.core.wording import call_of
from adiabat.data.text_hashes import in_blocks
from adiabat.store.bm25 import BM25Index, build_bm25
from adiabat.store.fusion import Fusion
from adiabat.store.vector_store import Store

FOLDER = "bm25"
"""Folder of the index in a store, and of all of them in the cache."""

PAUSE = 0.5
"""Seconds between two looks at an index that another process builds."""


def own_bm25(store: Store, *, stemmer: str | None = None, watch: Watch = SILENT) -> BM25Index:
    """Open the index of the store's documents, in their order, or build it.

    Args:
        store: Must keep its texts.
        stemmer: Language of the stemmer; None keeps whole words.
        watch: Receives the progress of a build.

    Raises:
        StoreError: If the store keeps no texts, or they have no words.
    """
    require_texts(store)
    folder = _place(store, stemmer)
    while True:
        if index := _at_hand(folder, store):
            return index
        with writing_to(folder):
            make_folder(folder, parents=True)
        try:
            with sole_writer(folder):
                return _at_hand(folder, store) or _built(folder, store, stemmer, watch)
        except InUseError:
            watch.progress("waiting for another process, which builds the BM25 index", 0, store.count)
            time.sleep(PAUSE)


def own_fusion(store: Store, section: FusionSection, watch: Watch = SILENT) -> Fusion | None:
    """What the settings fuse the vectors of a store with; None for nothing."""
    if section.by is None:
        return None
    return Fusion(own_bm25(store, stemmer=section.stemmer, watch=watch), section.weight)


def _built(folder: Path, store: Store, stemmer: str | None, watch: Watch) -> BM25Index:
    index = build_bm25(
        in_blocks(store.texts, np.arange(store.count)),
        folder,
        stemmer=stemmer,
        corpus=store.manifest.documents,
        on_progress=lambda done: watch.progress("building the BM25 index", done, store.count),
    )
    store.require_unchanged()
    return index


def require_texts(store: Store) -> None:
    """Refuse a store without texts."""
    if not store.has_texts:
        raise StoreError(
            f"{store.path} must keep its texts to be fused with BM25, it holds vectors only; "
            f"embed the corpus again by {call_of('embed')}"
        )


def _place(store: Store, stemmer: str | None) -> Path:
    name = FOLDER if stemmer is None else f"{FOLDER}-{stemmer}"
    own = Path(store.path) / name
    if is_writable(Path(store.path)) or _at_hand(own, store):
        return own
    return user_cache() / FOLDER / f"{store.manifest.documents[:32]}-{name}"


def _at_hand(folder: Path, store: Store) -> BM25Index | None:
    """The index in a folder, if it is of the store's documents as they are now."""
    index = BM25Index.at_hand(folder)
    return index if index is not None and index.corpus == store.manifest.documents else None
