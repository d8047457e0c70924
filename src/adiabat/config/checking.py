"""Settings of ``adiabat check`` and ``adiabat watch``, which ask a running endpoint."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.exporting import ComparedSection
from adiabat.config.section import Seconds, Section, Text
from adiabat.config.shared import EncoderTables


class EndpointSection(Section):
    """How an endpoint is asked."""

    served: Text | None = None
    """Name of the model at the endpoint; None takes the only one that it lists."""
    token_variable: Text = "ADIABAT_TOKEN"
    """Environment variable with the endpoint's token, if it asks for one."""
    timeout_seconds: PositiveFloat = 60.0
    """Seconds that the endpoint has for a request."""


class CheckSection(ComparedSection, EndpointSection):
    """``[check]``: the texts to compare, and the least agreement."""

    tower: Literal["query", "document"] = "query"
    """Tower that the endpoint should serve."""
    texts: PositiveInt = 200
    """Most texts to compare."""
    min_cosine: Annotated[float, Field(ge=-1, le=1)] = 0.999
    """Least cosine between a vector of the endpoint and the model's own; below it they differ."""


class CheckSettings(EncoderTables):
    """All settings of ``adiabat check``."""

    check: CheckSection = CheckSection()


class WatchSection(EndpointSection):
    """``[watch]``: probes, schedule, and the drift that is an alarm."""

    probes: Text = "default"
    """File of probe texts, ``default`` for the 680 packaged with adiabat, or ``sample`` for a quarter of
    these."""
    depth: Annotated[int, Field(ge=2)] = 100
    """Documents that are retrieved for each probe."""
    similarity: Literal["cosine", "dot", "euclidean"] = "cosine"
    """Similarity that the endpoint's users rank by; of vectors of unit length all rank alike."""
    limit: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Overlap loss (`adiabat.adiabatic.drift`) above which a reading is an alarm; it is 0 where every probe
    retrieves the same documents in the same order."""
    every: Seconds | None = None
    """Time between two readings, in seconds or such as ``10min``; None takes one reading."""


class WatchSettings(Section):
    """All settings of ``adiabat watch``."""

    watch: WatchSection = WatchSection()
