"""Settings of ``adiabat serve``."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.faults import Need
from adiabat.config.section import Section, Text, Texts, each_once
from adiabat.config.shared import DeviceSection, FusionSection, RankingTables


class ServeSection(Section):
    """``[serve]``: towers, address, and the limits of requests."""

    towers: Annotated[Texts, each_once("tower")] = ()
    """Query towers, each a MODEL or ``NAME=MODEL``; without a name, that of its directory. Required."""
    host: Text = "127.0.0.1"
    """Address to listen on; the default is reached from this machine alone."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8_000
    """Port to listen on; 0 takes a free one."""
    token_variable: Text = "ADIABAT_TOKEN"
    """Environment variable with the token that requests must bear; without it none is asked for, and only a
    server for this machine alone lets requests change its towers."""
    most_texts: PositiveInt = 2_048
    """Most texts of one request."""
    most_bytes: PositiveInt = 8 * 2**20
    """Most bytes of one request."""
    most_waiting: PositiveInt = 8_192
    """Most texts that wait to be embedded; a request beyond them is answered by 503."""
    batch_texts: PositiveInt = 256
    """Most texts of several requests that are embedded together."""
    timeout_seconds: PositiveFloat = 30.0
    """Seconds after which a request that waits is answered by 504."""
    approximate: bool = False
    """Search by an index of faiss (extra ``faiss``), which is built at the start, in place of exactly."""
    min_recall: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Share of the first ten documents of an exact search that an approximate one must find; measured at the
    start by probe texts and each tower."""
    preferences: Text | None = None
    """File that thumbs on the page are appended to, as examples for ``adiabat tune``; None takes none."""

    needs = (Need("min_recall", "approximate"),)
    """An exact search finds all."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """A request of the largest size can wait."""
        if self.most_waiting < self.most_texts:
            told = f"must be at least serve.most_texts, {self.most_texts}, got {self.most_waiting}; raise it"
            yield "most_waiting", told


class ServeSettings(RankingTables):
    """All settings of ``adiabat serve``."""

    serve: ServeSection = ServeSection()
    fuse: FusionSection = FusionSection()
    run: DeviceSection = DeviceSection()
