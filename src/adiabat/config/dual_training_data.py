"""Data settings of ``adiabat train``: sources, their mixture, and batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.faults import Need
from adiabat.config.section import Amount, Choice, Exhausted, Fraction, MixtureRule, Section, Text
from adiabat.config.shared import ColumnsSection, ExamplesSection, HeldOutSection


class TrainColumnsSection(ColumnsSection):
    """``[data.columns]``: names of the columns in your files, if adiabat does not recognise them."""

    topic: Text | None = None
    """Column with the topic of a pair, such as its forum; the first entry of a list is used."""
    tag: Text | None = None
    """Column with a finer topic of a pair."""


class TrainExamplesSection(ExamplesSection):
    """Examples of training, whose documents may lie in a corpus, and whose pairs may have topics."""

    columns: TrainColumnsSection = TrainColumnsSection()
    corpus: Text | None = None
    """Corpus with the texts of documents that examples name by id. None uses the corpus of a BEIR folder;
    other examples then hold texts."""


class SourceSection(TrainExamplesSection):
    """One of ``[[data.sources]]``; settings left out are taken from ``[data]``."""

    path: Text
    """File, folder or hub data set."""
    weight: PositiveFloat = 1.0
    """Relative share of the source if `mixture.rule` is ``weights``."""


class StreamSection(Section):
    """``[data.stream]``: read the training data during training, for data larger than memory and disk."""

    shard_size: PositiveInt = 131_072
    """Number of examples per shard, which are read and shuffled together; an example has one pair or
    several."""


class TrainDataSection(TrainExamplesSection, HeldOutSection):
    """``[data]``: training and validation data."""

    sources: Annotated[tuple[SourceSection, ...], Field(strict=False)] = ()
    """Sources of training data, in place of `job.data`."""
    cache: Text | None = None
    """Directory for cached tokenized data; None takes ``adiabat`` in the user's cache directory."""
    max_validation: PositiveInt = 1_000
    """Maximum number of queries held out for validation."""
    stream: StreamSection | None = None
    """Read the data one shard at a time during training, for data larger than memory and disk."""

    def listed(self, source: str | None = None) -> tuple[SourceSection, ...]:
        """The sources of training data: only `source` if given, otherwise `sources`."""
        # `job.data` is short for one source with the settings of `[data]`.
        sections = (SourceSection(path=source),) if source is not None else self.sources
        return tuple(
            section.model_copy(
                update={
                    "split": section.split or self.split,
                    "corpus": section.corpus or self.corpus,
                    # Columns are taken as a whole: those of `[data]` may not exist in this source.
                    "columns": section.columns if section.columns.given() else self.columns,
                }
            )
            for section in sections
        )

    def faults(self) -> Iterator[tuple[str, str]]:
        """Each source is listed once."""
        numbers_of: dict[object, list[int]] = {}
        for number, source in enumerate(self.listed(), 1):
            numbers_of.setdefault(
                (Path(source.path), source.split, source.corpus, source.columns), []
            ).append(number)
        if again := next((numbers for numbers in numbers_of.values() if len(numbers) > 1), None):
            phrase = (
                f"must list each source once, got {self.sources[again[0] - 1].path} as "
                f"numbers {' and '.join(map(str, again))}"
            )
            yield (
                "sources",
                f'{phrase}; leave one out, and let it count more by its weight (mixture.rule = "weights")',
            )


class Shares(Choice):
    """Shares of a pass: proportional to sizes, equal, by the `weight` of each source, or proportional to
    ``size ** (1 / temperature)``.
    """

    kind: MixtureRule = "proportional"
    temperature: PositiveFloat = 2.0
    """1 makes shares proportional to the sizes; higher values bring them closer to equal."""

    needs = (Need("temperature", "kind", ("temperature",)),)
    """Other rules have no temperature."""


class MixtureSection(Section):
    """``[mixture]``: share of each source in a pass, and how sources alternate (Reimers 2021)."""

    rule: Shares = Shares()
    """Share of each source in a pass."""
    cap: PositiveInt | None = None
    """Maximum number of pairs per source in a pass, redrawn for each pass; the rule counts a larger source as
    having this size."""
    exhausted: Exhausted = "drop"
    """When a source runs out within a pass: stop the pass, repeat the source (cycle), or continue with the
    others (drop)."""
    one_source_per_batch: bool = False
    """Draw each batch from a single source."""


class Grouping(Choice):
    """Random batches (none), or batches of pairs with the same topic, or the same tag.

    Pairs left over from tags form batches by topic, the rest random batches.
    """

    kind: Literal["none", "topic", "tag"] = "none"
    random_share: Fraction = 0.1
    """Share of random batches among those of topics or tags."""
    curriculum_steps: Amount = 0
    """Number of steps over which the share of random batches falls from 1 to `random_share`."""

    needs = (
        Need("random_share", "kind", ("topic", "tag")),
        Need("curriculum_steps", "kind", ("topic", "tag")),
    )
    """All batches are random where none are grouped."""


class BatchesSection(Section):
    """``[batches]``: which pairs share a batch (Reimers 2021)."""

    group: Grouping = Grouping()
    """What the pairs of a batch have in common."""
    no_duplicates: bool = False
    """Keep pairs that share a text out of the same batch; pairs that fit into no batch wait for the next
    pass."""
    token_budget: PositiveInt | None = None
    """Maximum number of tokens in a batch, both sides together. `train.batch_size` then limits the number of
    pairs, and `train.steps` is required."""
