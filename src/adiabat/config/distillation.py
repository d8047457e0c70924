"""Settings of ``adiabat distill``: static models and trained students."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from adiabat.config.dual_training import MemorySection, TrainRunSection, TrainSection, TrainSettings
from adiabat.config.dual_training_data import BatchesSection, MixtureSection, SourceShares, TemperatureShares
from adiabat.config.faults import PlacedError, shown
from adiabat.config.reader import checked
from adiabat.config.section import Choice, Exhausted, Section, Text, Texts, each_once
from adiabat.config.shared import EncoderSection, RunSection
from adiabat.config.training_choices import RegressionLoss, TrainLoss
from adiabat.core.wording import option

Width = Literal["auto", "pca", "projection", "none"]


class DistillSection(Section):
    """``[distill]``: teachers, student and output directory."""

    teachers: Annotated[Texts, each_once("teacher")] = ()
    """Teacher models. The unit-length embeddings of several teachers are concatenated, so that the student
    learns their mean cosine. Required."""
    student: Text | None = None
    """Model that the student starts from. Required."""
    out: Text | None = None
    """Directory of the job, which becomes the student model. Required."""
    tower: Literal["query", "document"] | None = None
    """Tower and prompt of a teacher that embed all texts; the student always uses its query prompt. None
    takes query, or refuses a teacher whose towers differ, such as a job of ``adiabat tune``."""
    width: Width = "auto"
    """How the width of the student is matched to that of the teachers, by a linear layer fitted before
    training. ``projection`` maps the student into the space of the teachers, so that stored teacher vectors
    can be searched; ``pca`` reduces the teachers to the width of a narrower student; ``none`` requires equal
    widths. ``auto`` takes ``pca`` if the student is narrower, and ``projection`` otherwise."""


class StudentDataSection(Section):
    """``[data]`` of a student: size of the validation set."""

    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of the teacher's texts held out for validation with all their translations, chosen by a hash of
    the text."""
    max_validation: PositiveInt = 1_000
    """Maximum number of the teacher's texts held out for validation."""


class FitDataSection(StudentDataSection):
    """``[data]`` of ``distill fit``: unlabelled texts."""

    texts: Annotated[Texts, each_once("source")] = ()
    """Corpora of documents: files, folders or hub data sets."""
    queries: Annotated[Texts, each_once("source")] = ()
    """Files of examples; only their queries are used."""


class ParallelDataSection(StudentDataSection):
    """``[data]`` of a multilingual student: texts and their translations."""

    parallel: Annotated[Texts, each_once("source")] = ()
    """Tables with a column for each language, or pairs of text files with parallel lines, written
    ``FILE.en,FILE.de``."""
    source: Text = "en"
    """Language of the texts that the teachers embed."""
    languages: Annotated[Texts, each_once("language")] = ()
    """Languages to learn; empty takes all languages of the data."""
    passages: PositiveInt = 4
    """Maximum number of neighbouring sentences joined into a passage; 1 trains on single sentences only."""


class TeachTrainSection(TrainSection):
    """``[train]`` of a student. The learning rate of a static student defaults to 5e-3."""

    loss: TrainLoss = RegressionLoss(kind="cosine_distance")
    keep: Literal["last", "best"] = "best"
    """Weights to save: the last, or those with the lowest validation loss (best)."""


STATIC_RATE = 5e-3
"""Learning rate of a table of token vectors; it is high because a batch updates few of them."""


class TeachSettings(Section):
    """Settings that ``distill fit`` and ``distill multilingual`` share."""

    distill: DistillSection = DistillSection()
    teacher: EncoderSection = EncoderSection()
    """Encoder settings of all teachers."""
    encoder: EncoderSection = EncoderSection()
    """Encoder settings of the student."""
    data: StudentDataSection = StudentDataSection()
    batches: BatchesSection = BatchesSection()
    mixture: MixtureSection = MixtureSection()
    train: TeachTrainSection = TeachTrainSection()
    memory: MemorySection = MemorySection()
    run: TrainRunSection = TrainRunSection()

    def training(self, **tables: Mapping[str, Any]) -> TrainSettings:
        """Settings of the student's training run."""
        names = ("encoder", "batches", "mixture", "train", "memory", "run")
        here: dict[str, dict[str, Any]] = {
            name: getattr(self, name).model_dump(exclude_unset=True) for name in names
        }
        here["train"] |= {"loss": self.train.loss.model_dump(), "keep": self.train.keep}
        for name, table in tables.items():
            here[name] = {**here.get(name, {}), **table}
        return checked(TrainSettings, here)


class FitSettings(TeachSettings):
    """All settings of ``adiabat distill fit``."""

    data: FitDataSection = FitDataSection()


class LanguageShares(SourceShares):
    """Shares of the languages: proportional to the numbers of texts, or equal."""

    kind: Literal["proportional", "equal"]


class TranslationMixtureSection(MixtureSection):
    """``[mixture]`` of languages. The default rule oversamples languages with few texts."""

    rule: Annotated[LanguageShares | TemperatureShares, Field(discriminator="kind")] = TemperatureShares()
    """Share of each language in a pass."""
    exhausted: Exhausted = "cycle"
    """When a language runs out within a pass: repeat it until the largest language has been read (cycle),
    stop the pass, or continue with the others (drop)."""


class MultilingualSettings(TeachSettings):
    """All settings of ``adiabat distill multilingual``."""

    data: ParallelDataSection = ParallelDataSection()
    mixture: TranslationMixtureSection = TranslationMixtureSection()


USUAL_DIMS = 256
"""Default width of model2vec (van Dongen and Tulkens)."""


class NoReduction(Choice):
    """Keep the width of the teacher."""

    kind: Literal["none"] = "none"
    dims: ClassVar[int | None] = None


class Reduction(Choice):
    """Principal components (pca; randomized is faster for teachers with thousands of dimensions), or
    independent components (ica).
    """

    kind: Literal["pca", "randomized", "ica"]
    dims: PositiveInt | None = None
    """Dimensions to keep; None takes 256, or the teacher's width if that is smaller."""


class NoWeighting(Choice):
    """Weight all tokens equally."""

    kind: Literal["none"] = "none"
    corpus: ClassVar[Text | None] = None


class CountedWeighting(Choice):
    """Base of the weightings by token frequency."""

    corpus: Text | None = None
    """Texts in which tokens are counted; None estimates the frequencies from the ranks of the tokens by
    Zipf's law."""


class ZipfWeighting(CountedWeighting):
    """Weight a token by ``ln`` of its frequency rank."""

    kind: Literal["zipf"] = "zipf"


class SifWeighting(CountedWeighting):
    """Smooth inverse frequency ``a / (a + p)`` of a token with probability ``p`` (Arora et al. 2017)."""

    kind: Literal["sif"] = "sif"
    a: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    """``a`` of the formula."""


class TfidfWeighting(Choice):
    """Inverse document frequency."""

    kind: Literal["tfidf"] = "tfidf"
    corpus: Text
    """Texts in which tokens are counted."""

    @model_validator(mode="before")
    @classmethod
    def _has_texts(cls, table: Any) -> Any:
        if isinstance(table, Mapping) and table.get("corpus") is None:
            advice = f'add {option("corpus")}, or set static.weighting = "sif" or "zipf"'
            phrase = f'must be given with static.weighting = "tfidf", got none; {advice}'
            raise PlacedError([("corpus", phrase)])
        return table


Weighting = Annotated[
    NoWeighting | ZipfWeighting | SifWeighting | TfidfWeighting, Field(discriminator="kind")
]


class StaticSection(Section):
    """``[static]``: vectors and weights of the tokens."""

    tower: Literal["query", "document"] | None = None
    """Tower of the teacher to distill. None takes the only tower, or refuses a teacher whose towers differ,
    such as a job of ``adiabat tune``."""
    reduction: Annotated[NoReduction | Reduction, Field(discriminator="kind")] = Reduction(kind="pca")
    """Dimensionality reduction of the token vectors."""
    pooling: Literal["mean", "token", "first", "last"] = "mean"
    """How a token's vector is taken from the teacher's hidden states: their mean including special tokens,
    the token's own, the first, or the last."""
    weighting: Weighting = SifWeighting()
    """Weights of the tokens by frequency."""
    vocabulary: Text | None = None
    """File of words and phrases to add, one per line."""
    without: Text | None = r"\[unused\d+\]"
    """Regular expression of tokens to leave out; it is matched at the beginning of a token."""
    normalize: bool = True
    """Scale text embeddings to unit length."""
    dtype: Literal["float32", "float16", "int8"] = "float16"
    """Number format of the token table on disk; ``int8`` stores a scale for each token."""


class AblateSection(Section):
    """``[ablate]``: the suite, the output directory, and the data of the training steps."""

    suite: Text | None = None
    """A TOML file of tasks, or a suite that comes with adiabat. Required."""
    out: Text | None = None
    """Output directory of all models and the result of the suite. Required."""
    texts: Texts = ()
    """Corpora for the step that trains the static model towards its teacher; empty skips the step."""
    queries: Texts = ()
    """Files of examples whose queries are added to `texts`."""
    pairs: Text | None = None
    """Queries with documents for the last step, which trains separate query and document tables; None skips
    the step."""


class AblatedStatic(StaticSection):
    """``[static]`` of an ablation: settings that all steps share."""

    weighting: SifWeighting = SifWeighting()
    """Weighting of the steps with SIF; a corpus adds a step that counts tokens in it."""

    @field_validator("weighting", mode="before")
    @classmethod
    def _is_sif(cls, value: Any) -> Any:
        kind = value.get("kind", "sif") if isinstance(value, Mapping) else "sif"
        if kind != "sif":
            phrase = (
                'must be "sif" in an ablation, whose steps set the other kinds, '
                f"got {shown(kind)}; leave it out"
            )
            raise PlacedError([("kind", phrase)])
        return value

    def faults(self) -> Iterator[tuple[str, str]]:
        """Settings that the steps vary are unset."""
        for name in (name for name in ("pooling", "normalize") if name in self.model_fields_set):
            yield name, "must be left out of an ablation, whose steps vary it; leave it out"


class PairsTrainSection(TrainSection):
    """``[pairs]`` of an ablation: training on queries with documents, the last step."""

    learning_rate: PositiveFloat = STATIC_RATE
    """Peak learning rate."""


class FitTrainSection(TeachTrainSection):
    """``[fit]`` of an ablation: training towards the teacher, the step before the last."""

    learning_rate: PositiveFloat = STATIC_RATE
    """Peak learning rate."""


class AblateSettings(Section):
    """All settings of ``adiabat distill ablate``."""

    ablate: AblateSection = AblateSection()
    static: AblatedStatic = AblatedStatic()
    fit: FitTrainSection = FitTrainSection()
    pairs: PairsTrainSection = PairsTrainSection()
    encoder: EncoderSection = EncoderSection()
    """Encoder settings of the teacher: blocks to keep, and permission to run its code."""
    run: RunSection = RunSection()


class DistillStaticSettings(Section):
    """All settings of ``adiabat distill static``."""

    static: StaticSection = StaticSection()
    encoder: EncoderSection = EncoderSection()
    """Encoder settings of the teacher: blocks to keep, and permission to run its code."""
    run: RunSection = RunSection()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Settings of prompts and pooling are unset, because the teacher embeds single tokens."""
        for name in self.encoder.overrides():
            yield (
                f"encoder.{name}",
                "has no effect on a static model, whose tokens are embedded one by one; leave it out",
            )
