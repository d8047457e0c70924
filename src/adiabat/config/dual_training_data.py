"""Settings of what ``adiabat train`` reads, and of what shares a batch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.section import Amount, Exhausted, Fraction, MixtureRule, Section, Text
from adiabat.config.shared import ColumnsSection, HeldOutSection
from adiabat.config.validation import Need


class TrainColumnsSection(ColumnsSection):
    """``[data.columns]`` of a training run."""

    topic: Text | None = None
    """What a pair is about, such as its forum; of a list, the first."""
    tag: Text | None = None
    """The same, finer."""


class SourceSection(Section):
    """One of ``[[data.sources]]``; what it leaves out is taken from ``[data]``."""

    path: Text
    """A file, a folder or a data set of the hub."""
    weight: PositiveFloat = 1.0
    """Its share, where `MixtureSection.rule` is ``weights``."""
    split: Text | None = None
    corpus: Text | None = None
    columns: TrainColumnsSection = TrainColumnsSection()


class TrainDataSection(HeldOutSection):
    """``[data]`` of a training run."""

    needs: ClassVar[Mapping[str, Need]] = {**HeldOutSection.needs, "window": Need("stream", (True,))}
    columns: TrainColumnsSection = TrainColumnsSection()
    sources: Annotated[tuple[SourceSection, ...], Field(strict=False)] = ()
    """Several sources in place of `job.data`."""
    corpus: Text | None = None
    """Texts of documents that the examples name by id; None takes a BEIR folder's own, and otherwise the examples' entries as texts."""
    cache: Text | None = None
    """Folder where data that were read and tokenised are kept for the next run; None takes ``adiabat`` in the user's cache directory."""
    max_validation: PositiveInt = 1_000
    """Most queries held out."""
    stream: bool = False
    """Read the data while training, a window at a time, and go on from there: for data larger than memory and disk."""
    window: PositiveInt = 131_072
    """Examples that are read together and shuffled among themselves, each a pair or several."""

    def listed(self, source: str | None = None) -> tuple[SourceSection, ...]:
        """What is trained on.

        Args:
            source: `JobSection.data`, which is then all of it; None takes `sources`.
        """
        here = (SourceSection(path=source),) if source is not None else self.sources
        return tuple(
            one.model_copy(
                update={
                    "split": one.split or self.split,
                    "corpus": one.corpus or self.corpus,
                    "columns": one.columns if one.columns.given() else self.columns,
                }
            )
            for one in here
        )

    @model_validator(mode="after")
    def _each_source_once(self) -> Self:
        places: dict[object, list[int]] = {}
        for number, one in enumerate(self.listed(), 1):
            places.setdefault((Path(one.path), one.split, one.corpus, one.columns), []).append(number)
        if again := next((numbers for numbers in places.values() if len(numbers) > 1), None):
            raise ValueError(
                f"data.sources must list each source once, got {self.sources[again[0] - 1].path} as numbers "
                f'{" and ".join(map(str, again))}; leave one out, and let it count more by its weight (mixture.rule = "weights")'
            )
        return self


class MixtureSection(Section):
    """``[mixture]``: how much of each source a pass holds, and in which order (Reimers 2021)."""

    needs: ClassVar[Mapping[str, Need]] = {"temperature": Need("rule", ("temperature",))}
    rule: MixtureRule = "proportional"
    """To their sizes, equal, to their sizes to the power of one over the temperature, or as `SourceSection.weight` says."""
    temperature: PositiveFloat = 2.0
    cap: PositiveInt | None = None
    """Most pairs of a source in a pass, which also stand for its size; each pass takes others."""
    exhausted: Exhausted = "drop"
    """What happens when a source has run out within a pass: the pass stops, the source begins anew, or the others go on alone."""
    one_source_per_batch: bool = False


class BatchesSection(Section):
    """``[batches]``: which pairs share a batch (Reimers 2021)."""

    needs: ClassVar[Mapping[str, Need]] = {
        "random_share": Need("group", ("topic", "tag")),
        "curriculum_steps": Need("group", ("topic", "tag")),
    }
    group: Literal["none", "topic", "tag"] = "none"
    """Batches of one topic; or of one tag, and of one topic from what is left of the tags. What is left of those is random."""
    random_share: Fraction = 0.1
    """Share of batches that are random all the same."""
    curriculum_steps: Amount = 0
    """Steps over which that share falls from 1."""
    no_duplicates: bool = False
    """Keep pairs apart that have a text in common; those that fit into no batch wait for another pass."""
    token_budget: PositiveInt | None = None
    """Most tokens of a batch, both sides together; `TrainSection.batch_size` is then the most pairs, and `TrainSection.steps` is needed."""
