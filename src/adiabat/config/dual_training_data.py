"""Settings of what ``adiabat train`` reads, and of what shares a batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.section import Amount, Choice, Exhausted, Fraction, Section, Text
from adiabat.config.shared import ColumnsSection, HeldOutSection


class TrainColumnsSection(ColumnsSection):
    """``[data.columns]`` of a training run."""

    topic: Text | None = None
    """Column of the topic of a pair, such as its forum; of a list, the first entry counts."""
    tag: Text | None = None
    """Column of a finer topic."""


class SourceSection(Section):
    """One of ``[[data.sources]]``; ``[data]`` has what it leaves out."""

    path: Text
    """File, folder or data set of the hub."""
    weight: PositiveFloat = 1.0
    """Share of the source, where `mixture.rule` is ``weights``."""
    split: Text | None = None
    corpus: Text | None = None
    columns: TrainColumnsSection = TrainColumnsSection()


class StreamSection(Section):
    """``[data.stream]``: training data that are read while training."""

    shard_size: PositiveInt = 131_072
    """Examples that are read together and shuffled among themselves, each a pair or several."""


class TrainDataSection(HeldOutSection):
    """``[data]`` of a training run."""

    columns: TrainColumnsSection = TrainColumnsSection()
    sources: Annotated[tuple[SourceSection, ...], Field(strict=False)] = ()
    """Several sources, in place of `job.data`."""
    corpus: Text | None = None
    """Texts of documents that the examples name by id; None takes those of a BEIR folder, and other examples' entries as texts."""
    cache: Text | None = None
    """Folder that caches tokenized data for the next run; None takes ``adiabat`` in the user's cache directory."""
    max_validation: PositiveInt = 1_000
    """Maximum number of queries held out."""
    stream: StreamSection | None = None
    """Read the data while training, a shard at a time: for data larger than memory and disk."""

    def listed(self, source: str | None = None) -> tuple[SourceSection, ...]:
        """The sources of training: `source` alone where it is given, else those of `sources`."""
        sections = (SourceSection(path=source),) if source is not None else self.sources
        return tuple(
            section.model_copy(
                update={
                    "split": section.split or self.split,
                    "corpus": section.corpus or self.corpus,
                    "columns": section.columns if section.columns.given() else self.columns,
                }
            )
            for section in sections
        )

    def faults(self) -> Iterator[tuple[str, str]]:
        """Each source is listed once."""
        numbers_of: dict[object, list[int]] = {}
        for number, source in enumerate(self.listed(), 1):
            numbers_of.setdefault((Path(source.path), source.split, source.corpus, source.columns), []).append(number)
        if again := next((numbers for numbers in numbers_of.values() if len(numbers) > 1), None):
            phrase = f"must list each source once, got {self.sources[again[0] - 1].path} as numbers {' and '.join(map(str, again))}"
            yield "sources", f'{phrase}; leave one out, and let it count more by its weight (mixture.rule = "weights")'


class SourceShares(Choice):
    """Shares of the sources: proportional to their sizes, equal, or the `weight` of each source."""

    kind: Literal["proportional", "equal", "weights"]
    temperature: ClassVar[float] = 1.0


class TemperatureShares(Choice):
    """Shares proportional to the sizes to the power of one over the temperature."""

    kind: Literal["temperature"] = "temperature"
    temperature: PositiveFloat = 2.0
    """1 is proportional to the sizes; a higher one is nearer to equal shares."""


class MixtureSection(Section):
    """``[mixture]``: how much of each source a pass holds, and in which order (Reimers 2021)."""

    rule: Annotated[SourceShares | TemperatureShares, Field(discriminator="kind")] = SourceShares(kind="proportional")
    """Share of each source in a pass."""
    cap: PositiveInt | None = None
    """Maximum pairs of a source in a pass, which also count as its size; each pass draws others."""
    exhausted: Exhausted = "drop"
    """When a source runs out within a pass: stop the pass, repeat the source (cycle), or continue with the others (drop)."""
    one_source_per_batch: bool = False
    """Draw each batch from a single source."""


class MixedBatches(Choice):
    """Batches of any pairs."""

    kind: Literal["none"] = "none"
    random_share: ClassVar[float] = 0.1
    curriculum_steps: ClassVar[int] = 0


class GroupedBatches(Choice):
    """Batches of one topic; or of one tag, and of one topic from what is left of the tags. What is left of those is random."""

    kind: Literal["topic", "tag"]
    random_share: Fraction = 0.1
    """Share of batches that are random all the same."""
    curriculum_steps: Amount = 0
    """Steps over which that share falls from 1."""


class BatchesSection(Section):
    """``[batches]``: which pairs share a batch (Reimers 2021)."""

    group: Annotated[MixedBatches | GroupedBatches, Field(discriminator="kind")] = MixedBatches()
    """What the pairs of a batch have in common."""
    no_duplicates: bool = False
    """Keep pairs with a text in common out of the same batch; those that fit into no batch wait for the next pass."""
    token_budget: PositiveInt | None = None
    """Maximum tokens of a batch, both sides together; `train.batch_size` is then the maximum of pairs, and `train.steps` is needed."""
