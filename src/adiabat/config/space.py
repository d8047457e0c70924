"""Settings of ``adiabat space``: how much of the queries, documents and pairs of them is looked at (mission C6)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.faults import Need
from adiabat.config.section import DropSameId, Section
from adiabat.config.shared import DataSection, EncoderSection, RunSection

Sampled = Annotated[int, Field(ge=20, le=5_000)]
"""Tables of all pairs of a sample are held in memory: 200 MB at the most."""


class SpaceSection(Section):
    """``[space]``: sizes of the samples, and the map."""

    needs: ClassVar[Mapping[str, Need]] = {"map_queries": Need("map", (True,)), "perplexity": Need("map", (True,))}
    queries: Sampled = 2_000
    """Queries looked at, each with one positive, drawn at random where there are more."""
    documents: Sampled = 2_000
    """Documents of the store that speak for the document tower, drawn likewise."""
    pairs: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """Pairs of a query and another one, or the other one's positive, drawn at random."""
    folds: Annotated[int, Field(ge=2, le=20)] = 5
    """Of the cross-validated probe that tells query vectors from document vectors."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 2_000
    """Of the bootstrap."""
    drop_same_id: DropSameId = "auto"
    """Pass over the document that has the query's id: if their texts are equal too (auto), whatever its text (true), or never (false)."""
    map: bool = False
    """Whether both towers are drawn as a map (extra ``maps``)."""
    map_queries: PositiveInt = 500
    """Queries of the map, each with its positive; of those that are looked at."""
    perplexity: Annotated[PositiveFloat, Field(ge=2)] = 30.0
    """Of the map: about how many neighbours of a point count."""


class SpaceSettings(Section):
    """Everything that ``adiabat space`` may be told."""

    encoder: EncoderSection = EncoderSection()
    data: DataSection = DataSection()
    space: SpaceSection = SpaceSection()
    run: RunSection = RunSection()
