"""Results as pandas DataFrames."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from adiabat.core.errors import MissingDependencyError

if TYPE_CHECKING:
    from pandas import DataFrame


def frame_of(rows: Iterable[Mapping[str, Any]]) -> "DataFrame":
    """Make a DataFrame with a row for each mapping; keys of nested ones are joined by dots."""
    try:
        import pandas
    except ImportError as error:
        raise MissingDependencyError("pandas", extra="frames", purpose="to_frame()") from error
    return pandas.json_normalize(list(rows))
