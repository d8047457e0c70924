"""Settings of ``adiabat distil fit`` and ``adiabat distil multilingual``: a student that comes close to its teachers (mission D6)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from adiabat.config.faults import Need
from adiabat.config.reading import checked
from adiabat.config.section import Exhausted, Section, Text, Texts, each_once
from adiabat.config.shared import EncoderSection
from adiabat.config.train import MemorySection, TrainRunSection, TrainSection, TrainSettings
from adiabat.config.train_data import BatchesSection, MixtureSection

Width = Literal["auto", "pca", "projection", "none"]


class DistilSection(Section):
    """``[distil]``: who teaches whom."""

    teachers: Annotated[Texts, each_once("teacher")] = ()
    """Models; of several, embeddings of unit length stand side by side, so that a student's cosine is the mean of theirs. Required."""
    student: Text | None = None
    """Where training starts. Required."""
    out: Text | None = None
    """Directory of the job, afterwards a MODEL. Required."""
    side: Literal["query", "document"] = "query"
    """Whose tower and prompt of a teacher embeds all texts, documents and queries alike; a student learns with its query prompt."""
    width: Width = "auto"
    """How the student comes to its teachers' vectors, of whatever widths: by a linear layer on top of it, fitted before it learns, which a
    static student takes into its table. ``projection`` leads into the teachers' own space, so that their stored vectors serve;
    ``pca``, for a student narrower than they are, to their main directions, and keeps its width; ``none``, for one as wide, adds no layer.
    ``auto``: ``pca`` where it can be, else ``projection``."""


class HeldOutLessons(Section):
    """What all ``[lessons]`` have: how much is kept for validation."""

    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of the teacher's texts held out, by their hash, with all their translations."""
    max_validation: PositiveInt = 1_000
    """Most of the teacher's texts held out."""


class FitLessonsSection(HeldOutLessons):
    """``[lessons]`` of a fit: the user's own texts."""

    texts: Annotated[Texts, each_once("source")] = ()
    """Corpora: files, folders or data sets of the hub with documents."""
    queries: Annotated[Texts, each_once("source")] = ()
    """Examples whose queries are taken."""


class ParallelLessonsSection(HeldOutLessons):
    """``[lessons]`` of a multilingual student: texts with their translations."""

    parallel: Annotated[Texts, each_once("source")] = ()
    """Tables with a text for each language, or ``FILE.en,FILE.de``: two text files that go line by line."""
    source: Text = "en"
    """The language that the teachers know."""
    languages: Annotated[Texts, each_once("language")] = ()
    """Those that are learned; empty takes all that are there."""
    passages: PositiveInt = 4
    """Also learn passages of up to so many neighbouring sentences; 1 learns sentences alone."""


class TeachTrainSection(TrainSection):
    """``[train]`` of a student; of a static one the rate is `STATIC_RATE` unless it is given."""

    loss: Literal["in_batch_softmax", "samtone", "pair", "triplet", "mse", "cosine_distance"] = "cosine_distance"
    keep: Literal["last", "best"] = "best"


STATIC_RATE = 5e-3
"""Of a table with one vector per token, each of which a batch moves seldom."""


class TeachSettings(Section):
    """What both verbs may be told."""

    distil: DistilSection = DistilSection()
    teacher: EncoderSection = EncoderSection()
    """Of all teachers."""
    encoder: EncoderSection = EncoderSection()
    """Of the student."""
    lessons: HeldOutLessons = HeldOutLessons()
    batches: BatchesSection = BatchesSection()
    mixture: MixtureSection = MixtureSection()
    train: TeachTrainSection = TeachTrainSection()
    memory: MemorySection = MemorySection()
    run: TrainRunSection = TrainRunSection()

    def training(self, **tables: Mapping[str, Any]) -> TrainSettings:
        """The run that a student is trained by."""
        names = ("encoder", "batches", "mixture", "train", "memory", "run")
        here: dict[str, dict[str, Any]] = {name: getattr(self, name).model_dump(exclude_unset=True) for name in names}
        here["train"] |= {"loss": self.train.loss, "keep": self.train.keep}
        for name, table in tables.items():
            here[name] = {**here.get(name, {}), **table}
        return checked(TrainSettings, here)


class FitSettings(TeachSettings):
    """Everything that ``adiabat distil fit`` may be told."""

    lessons: FitLessonsSection = FitLessonsSection()


class TranslationMixtureSection(MixtureSection):
    """``[mixture]`` of languages: those with few texts get more than their share."""

    needs: ClassVar[Mapping[str, Need]] = MixtureSection.needs
    rule: Literal["proportional", "equal", "temperature"] = "temperature"
    exhausted: Exhausted = "cycle"
    """A pass ends with the largest language, and repeats the others up to their share."""


class MultilingualSettings(TeachSettings):
    """Everything that ``adiabat distil multilingual`` may be told."""

    lessons: ParallelLessonsSection = ParallelLessonsSection()
    mixture: TranslationMixtureSection = TranslationMixtureSection()
