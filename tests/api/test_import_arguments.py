"""What `import_vectors` takes for texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest

import adiabat


@pytest.mark.parametrize("kind", [list, tuple, pandas.Series, polars.Series, iter])
def test_texts_of_vectors_are_any_sequence_of_texts(tmp_path: Path, kind: Callable[[list[str]], Any]) -> None:
    store = adiabat.import_vectors(np.eye(2), tmp_path / "new", ids=["x", "y"], texts=kind(["one", "two"]))
    assert (store.doc_ids(range(2)), store.texts(range(2))) == (["x", "y"], ["one", "two"])
