"""Stores of imported vectors, by one call of the room."""

from pathlib import Path
from typing import Any

from adiabat.store import imports
from adiabat.store.commit import Change
from adiabat.store.deletion import Deletion
from adiabat.store.manifest import StoreDtype
from adiabat.store.vector_store import Store


def import_vectors(
    vectors: str | Path, out: str | Path, *, dtype: StoreDtype = "float16", **incoming: Any
) -> Store:
    """A new store of a file of vectors."""
    return imports.import_vectors(imports.Incoming(vectors, **incoming), out, dtype=dtype)


def update_from_vectors(
    vectors: str | Path, out: str | Path, *, deletion: Deletion | None = None, **incoming: Any
) -> Change:
    """A store with a file of vectors added to it."""
    return imports.update_from_vectors(imports.Incoming(vectors, **incoming), out, deletion=deletion)
