"""Settings of ``adiabat distill``: static models, and students that are trained."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.dual_training import MemorySection, TrainRunSection, TrainSection, TrainSettings
from adiabat.config.dual_training_data import BatchesSection, MixtureSection
from adiabat.config.reader import checked
from adiabat.config.section import Exhausted, Section, Text, Texts, each_once
from adiabat.config.shared import EncoderSection, RunSection
from adiabat.config.training_choices import CosineDistance, TrainLoss
from adiabat.config.validation import Need

Width = Literal["auto", "pca", "projection", "none"]


class DistillSection(Section):
    """``[distill]``: who teaches whom."""

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

    loss: TrainLoss = CosineDistance()
    keep: Literal["last", "best"] = "best"


STATIC_RATE = 5e-3
"""Of a table with one vector per token, each of which a batch moves seldom."""


class TeachSettings(Section):
    """What both verbs may be told."""

    distill: DistillSection = DistillSection()
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
        here["train"] |= {"loss": self.train.loss.model_dump(), "keep": self.train.keep}
        for name, table in tables.items():
            here[name] = {**here.get(name, {}), **table}
        return checked(TrainSettings, here)


class FitSettings(TeachSettings):
    """Everything that ``adiabat distill fit`` may be told."""

    lessons: FitLessonsSection = FitLessonsSection()


class TranslationMixtureSection(MixtureSection):
    """``[mixture]`` of languages: those with few texts get more than their share."""

    needs: ClassVar[Mapping[str, Need]] = MixtureSection.needs
    rule: Literal["proportional", "equal", "temperature"] = "temperature"
    exhausted: Exhausted = "cycle"
    """A pass ends with the largest language, and repeats the others up to their share."""


class MultilingualSettings(TeachSettings):
    """Everything that ``adiabat distill multilingual`` may be told."""

    lessons: ParallelLessonsSection = ParallelLessonsSection()
    mixture: TranslationMixtureSection = TranslationMixtureSection()


USUAL_DIMS = 256
"""van Dongen and Tulkens, model2vec, which distills every model to it."""


class StaticSection(Section):
    """``[static]``: how tokens become vectors, and what they weigh."""

    needs: ClassVar[Mapping[str, Need]] = {
        "dims": Need("reduction", ("pca", "randomized", "ica")),
        "sif": Need("weighting", ("sif",)),
        "corpus": Need("weighting", ("zipf", "sif", "tfidf")),
    }
    dims: PositiveInt | None = None
    """Numbers per token; None takes 256, or as many as the teacher has where these are fewer."""
    reduction: Literal["none", "pca", "randomized", "ica"] = "pca"
    """Which directions are kept; ``randomized`` is for teachers with thousands of numbers per token, ``ica`` the source found worse."""
    pooling: Literal["mean", "token", "first", "last"] = "mean"
    """Of the states of a token and the special tokens around it: their mean, the token's own, the first, or the last."""
    weighting: Literal["none", "zipf", "sif", "tfidf"] = "sif"
    """What frequent tokens lose: nothing; ``ln`` of the rank; smooth inverse frequency; or inverse document frequency, of a corpus."""
    sif: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    """``a`` of ``a / (a + p)``."""
    corpus: Text | None = None
    """Texts in which tokens are counted; None takes their rank for how frequent they are, by Zipf's law."""
    vocabulary: Text | None = None
    """Words and phrases that are added, one per line."""
    without: Text | None = r"\[unused\d+\]"
    """Tokens that begin with a match of this regular expression are left out."""
    normalize: bool = True
    """Whether texts get unit length."""
    dtype: Literal["float32", "float16", "int8"] = "float16"
    """Of the table on disk; ``int8`` with a scale for each token."""

    @model_validator(mode="after")
    def _has_what_it_counts_in(self) -> Self:
        if self.weighting == "tfidf" and self.corpus is None:
            raise ValueError("static.corpus must be given with static.weighting = tfidf, which counts texts, got none; add --corpus")
        return self


class AblateSection(Section):
    """``[ablate]``: what is measured on, and what steps beyond the source learn from."""

    suite: Text | None = None
    """A TOML file of tasks, or a suite that comes with adiabat. Required."""
    out: Text | None = None
    """Directory of all models and of the suite's result. Required."""
    texts: Texts = ()
    """Corpora that a step learns from, towards the teacher; none leaves the step out."""
    queries: Texts = ()
    """Examples whose queries it learns from too."""
    pairs: Text | None = None
    """Queries with documents that a last step learns from, query side and document side apart; None leaves it out."""


class AblatedStatic(StaticSection):
    """``[static]`` of an ablation: what all steps share."""

    @model_validator(mode="after")
    def _leaves_the_steps_what_they_vary(self) -> Self:
        if given := [f"static.{name}" for name in ("pooling", "weighting", "normalize") if name in self.model_fields_set]:
            raise ValueError(f"{' and '.join(given)} must be left out of an ablation, whose steps vary them; leave it out")
        return self


class PairsTrainSection(TrainSection):
    """``[pairs]`` of an ablation: how its last step is trained."""

    learning_rate: PositiveFloat = STATIC_RATE


class FitTrainSection(TeachTrainSection):
    """``[fit]`` of an ablation: how the step before is trained."""

    learning_rate: PositiveFloat = STATIC_RATE


class AblateSettings(Section):
    """Everything that ``adiabat distill ablate`` may be told."""

    ablate: AblateSection = AblateSection()
    static: AblatedStatic = AblatedStatic()
    fit: FitTrainSection = FitTrainSection()
    pairs: PairsTrainSection = PairsTrainSection()
    encoder: EncoderSection = EncoderSection()
    """Of the teacher: which blocks of it, and what code may run."""
    run: RunSection = RunSection()


class DistillStaticSettings(Section):
    """Everything that ``adiabat distill static`` may be told."""

    static: StaticSection = StaticSection()
    encoder: EncoderSection = EncoderSection()
    """Of the teacher: which blocks of it, and what code may run."""
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _takes_the_teacher_as_it_is(self) -> Self:
        if idle := [f"encoder.{name}" for name in self.encoder.overrides()]:
            raise ValueError(f"{' and '.join(idle)} has no effect on a static model, whose tokens pass by themselves; leave it out")
        return self
