"""Names of the arrays that many modules pass on."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int64, Integer, UInt64

RowNumbers = Int64[np.ndarray, " n"]
"""Numbers of documents in a store, or in a block of it, from 0."""

AnyRows = Sequence[int] | Integer[np.ndarray, " n"]
"""The same as callers may give them."""

Mask = Bool[np.ndarray, " n"]
"""A truth value for each document."""

VectorArray = Float[np.ndarray, "n e"]
"""Vectors of documents, a row each."""

BlockArray = Float[np.ndarray, "b e"]
"""Vectors of consecutive documents."""

IdHashes = UInt64[np.ndarray, " n"]
"""64 bits of each id."""
