"""Small files to inspect, and the plain way to count them."""

from collections.abc import Sequence
from pathlib import Path

from adiabat.config.dataset_settings import InspectSection, InspectSettings
from adiabat.config.dual_training_data import TrainColumnsSection, TrainExamplesSection
from adiabat.data.records import Side
from adiabat.profiling.profile import inspect
from adiabat.profiling.profile_record import Finding, Inspection

NO_IDENTIFIER = ("nobody", lambda text: ("xx", 0.0))
"""An identifier that never knows."""


def inspected(
    path: Path | str, *, corpus: Path | None = None, columns: dict[str, str] | None = None, **options: int
) -> Inspection:
    """Inspect with no language identifier, whatever is installed."""
    data = TrainExamplesSection(
        corpus=str(corpus) if corpus else None, columns=TrainColumnsSection(**(columns or {}))
    )
    settings = InspectSettings(data=data, inspect=InspectSection(**options))
    return inspect(str(path), settings=settings, identifier=NO_IDENTIFIER)


def of_kind(found: Inspection, kind: str) -> Finding | None:
    matching = [finding for finding in found.findings if finding.kind == kind]
    assert len(matching) < 2
    return matching[0] if matching else None


def sentence_of(found: Inspection, kind: str) -> str:
    finding = of_kind(found, kind)
    assert finding is not None, [one.kind for one in found.findings]
    return finding.sentence


class Letters:
    """A token for each character and two around them, three for the prompt of queries."""

    name = "letters"

    def __init__(self, *, query: int = 16, document: int = 32) -> None:
        self.limits = {"query": query, "document": document}
        self.calls = 0

    def limit(self, side: Side) -> int:
        return self.limits[side]

    def count(self, texts: Sequence[str], *, side: Side) -> list[int]:
        self.calls += 1
        return [len(text) + (5 if side == "query" else 2) for text in texts]
