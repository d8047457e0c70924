"""Shapes of the arrays that statistics work on.

Letters in shapes: n units, r resamples, e width of a vector.
"""

import numpy as np
from jaxtyping import Float, Int

Values = Float[np.ndarray, " n"]
"""A number for each unit: a score, a weight, a similarity."""

Numbers = Int[np.ndarray, " n"]
"""A whole number for each unit: of its group, its cluster, its label."""

Rows = Int[np.ndarray, " _"]
"""Rows of some units, or of documents in a store."""

Vectors = Float[np.ndarray, "n e"]
"""A vector for each unit."""

Counts = Float[np.ndarray, "r n"]
"""How often each unit is drawn in each resample."""

Draws = Float[np.ndarray, " r"]
"""A number for each resample."""
