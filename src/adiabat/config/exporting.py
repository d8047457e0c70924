"""Settings of ``adiabat export``."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from adiabat.config.section import Section, Text, Texts
from adiabat.config.shared import EncoderTables

Format = Literal["sentence-transformers", "onnx", "openvino", "peft", "delta", "model2vec"]

Precision = Literal["fp32", "fp16", "int8"]

GRAPHS: tuple[Format, ...] = ("onnx", "openvino")
"""Formats of a runtime, which can hold int8."""

LEAST_COSINE: dict[Precision, float] = {"fp32": 0.9999, "fp16": 0.999, "int8": 0.95}
"""Least cosine of an exported vector to the model's own, if none is set."""


class ComparedSection(Section):
    """What vectors of a model are compared on."""

    data: Text | None = None
    """Queries to compare on, with relevant documents in `store`; None takes those of the job, or packaged
    texts where it has none."""
    store: Text | None = None
    """Document vectors; None takes those of the job."""


class ExportSection(ComparedSection):
    """``[export]``: format, tower, precision, and the least agreement with the model's own vectors."""

    to: Format | None = None
    """Format to write. Required. ``peft`` and ``delta`` hold what differs from the base model."""
    tower: Literal["query", "document"] = "query"
    """Tower to export, with its prompt as the default one; left out for a delta, which holds each tower that
    differs from that of the base model."""
    precision: Precision | None = None
    """Precision of the weights; None takes fp16 for ``delta`` and fp32 otherwise. int8, for ``onnx`` and
    ``openvino``, is the runtime's own quantisation."""
    min_cosine: Annotated[float, Field(ge=-1, le=1)] | None = None
    """Least cosine between an exported vector and the model's own, below which nothing is written; None takes
    0.9999 (fp32), 0.999 (fp16), 0.95 (int8)."""
    base: Text | None = None
    """Base model of ``peft`` and ``delta``; None takes the model that the job started from."""
    evaluations: Texts = ()
    """Directories of ``adiabat evaluate`` whose tables the model card shows."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Only graphs of a runtime are quantised, and a delta holds both towers."""
        if self.to == "delta" and self.tower == "document":
            yield "tower", 'must be left out for delta, which holds what differs of both, got "document"'
        if self.precision == "int8" and self.to is not None and self.to not in GRAPHS:
            allowed = " or ".join(GRAPHS)
            yield "precision", f'must be fp32 or fp16 for {self.to}, got "int8"; export to {allowed}'

    @property
    def settled_precision(self) -> Precision:
        """The precision, that of the format where none is set."""
        return self.precision or ("fp16" if self.to == "delta" else "fp32")

    @property
    def least_cosine(self) -> float:
        """The least cosine that is accepted."""
        return LEAST_COSINE[self.settled_precision] if self.min_cosine is None else self.min_cosine


class ExportSettings(EncoderTables):
    """All settings of ``adiabat export``."""

    export: ExportSection = ExportSection()
