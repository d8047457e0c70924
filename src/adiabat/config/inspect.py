"""Settings of ``adiabat inspect``."""

from pydantic import PositiveInt

from adiabat.config.section import Amount, Section, SeedNumber, Text
from adiabat.config.shared import EncoderSection, ExamplesSection
from adiabat.config.train_data import TrainColumnsSection


class InspectDataSection(ExamplesSection):
    """``[data]`` of an inspection."""

    columns: TrainColumnsSection = TrainColumnsSection()
    """As training has them; a topic or tag that is named here is meant to be trained by, and must tell pairs apart."""
    corpus: Text | None = None
    """Texts of documents that the examples name by id; None takes a BEIR folder's own, and otherwise the examples' entries as texts."""


class InspectSection(Section):
    """``[inspect]``: how much is looked at and shown."""

    examples: Amount = 10
    """Rows shown, drawn at random."""
    sample: PositiveInt = 10_000
    """Texts of each role whose tokens are counted and languages told, drawn at random where there are more; the rest is counted whole."""


class InspectRunSection(Section):
    """``[run]`` of what reads and draws, and computes on no device."""

    seed: SeedNumber = 0
    """Of the rows shown and of the texts drawn."""


class InspectSettings(Section):
    """Everything that ``adiabat inspect`` may be told."""

    encoder: EncoderSection = EncoderSection()
    """Of the model whose tokenizer counts; without a model no setting of it has an effect, and one that is given is refused."""
    data: InspectDataSection = InspectDataSection()
    inspect: InspectSection = InspectSection()
    run: InspectRunSection = InspectRunSection()
