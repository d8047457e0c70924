"""Settings of ``adiabat distill``: static models, and students that are trained."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.dual_training import MemorySection, TrainRunSection, TrainSection, TrainSettings
from adiabat.config.dual_training_data import BatchesSection, MixtureSection, SourceShares, TemperatureShares
from adiabat.config.reader import checked
from adiabat.config.section import Choice, Exhausted, Section, Text, Texts, each_once
from adiabat.config.shared import EncoderSection, RunSection
from adiabat.config.training_choices import RegressionLoss, TrainLoss

Width = Literal["auto", "pca", "projection", "none"]


class DistillSection(Section):
    """``[distill]``: teachers, student and output."""

    teachers: Annotated[Texts, each_once("teacher")] = ()
    """Teacher models; the embeddings of several are joined at unit length, so that the student learns their mean cosine. Required."""
    student: Text | None = None
    """Model to start from. Required."""
    out: Text | None = None
    """Directory of the job, afterwards a MODEL. Required."""
    side: Literal["query", "document"] = "query"
    """Tower and prompt of a teacher that embed all texts; a student learns with its query prompt."""
    width: Width = "auto"
    """Linear layer between student and teachers, fitted before training; a static student multiplies its table by it. ``projection`` maps
    into the space of the teachers, whose stored vectors then serve; ``pca`` maps their main directions to a narrower student;
    ``none`` needs equal widths. ``auto`` takes ``pca`` where it is possible, else ``projection``."""


class StudentDataSection(Section):
    """``[data]`` of a student: how much of it is held out for validation."""

    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of the teacher's texts held out, by their hashes, with all their translations."""
    max_validation: PositiveInt = 1_000
    """Maximum number of the teacher's texts held out."""


class FitDataSection(StudentDataSection):
    """``[data]`` of a fit: the user's own texts."""

    texts: Annotated[Texts, each_once("source")] = ()
    """Corpora: files, folders or data sets of the hub with documents."""
    queries: Annotated[Texts, each_once("source")] = ()
    """Examples, whose queries are taken."""


class ParallelDataSection(StudentDataSection):
    """``[data]`` of a multilingual student: texts with their translations."""

    parallel: Annotated[Texts, each_once("source")] = ()
    """Tables with a text for each language, or ``FILE.en,FILE.de``: two text files with parallel lines."""
    source: Text = "en"
    """Language of the teachers."""
    languages: Annotated[Texts, each_once("language")] = ()
    """Languages to learn; empty takes all."""
    passages: PositiveInt = 4
    """Maximum number of neighbouring sentences that are joined to a passage; 1 trains on sentences alone."""


class TeachTrainSection(TrainSection):
    """``[train]`` of a student; of a static one the rate is `STATIC_RATE` unless it is given."""

    loss: TrainLoss = RegressionLoss(kind="cosine_distance")
    keep: Literal["last", "best"] = "best"


STATIC_RATE = 5e-3
"""Learning rate of a table with one vector per token, of which a batch moves few."""


class TeachSettings(Section):
    """Settings of both verbs that train a student."""

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
        """Settings of the training run of a student."""
        names = ("encoder", "batches", "mixture", "train", "memory", "run")
        here: dict[str, dict[str, Any]] = {name: getattr(self, name).model_dump(exclude_unset=True) for name in names}
        here["train"] |= {"loss": self.train.loss.model_dump(), "keep": self.train.keep}
        for name, table in tables.items():
            here[name] = {**here.get(name, {}), **table}
        return checked(TrainSettings, here)


class FitSettings(TeachSettings):
    """Everything that ``adiabat distill fit`` may be told."""

    data: FitDataSection = FitDataSection()


class LanguageShares(SourceShares):
    """Shares of the languages: proportional to their numbers of texts, or equal."""

    kind: Literal["proportional", "equal"]


class TranslationMixtureSection(MixtureSection):
    """``[mixture]`` of languages: those with few texts get more than their share."""

    rule: Annotated[LanguageShares | TemperatureShares, Field(discriminator="kind")] = TemperatureShares()
    """Share of each language in a pass."""
    exhausted: Exhausted = "cycle"
    """A pass ends with the largest language, and repeats the others up to their shares."""


class MultilingualSettings(TeachSettings):
    """Everything that ``adiabat distill multilingual`` may be told."""

    data: ParallelDataSection = ParallelDataSection()
    mixture: TranslationMixtureSection = TranslationMixtureSection()


USUAL_DIMS = 256
"""Default width of model2vec (van Dongen and Tulkens)."""


class NoReduction(Choice):
    """All numbers of the teacher."""

    kind: Literal["none"] = "none"
    dims: ClassVar[int | None] = None


class Reduction(Choice):
    """Principal components (randomized: faster where a teacher has thousands of numbers per token), or independent components (ica)."""

    kind: Literal["pca", "randomized", "ica"]
    dims: PositiveInt | None = None
    """Numbers per token; None takes 256, or as many as the teacher has where these are fewer."""


class NoWeighting(Choice):
    """Every token counts the same."""

    kind: Literal["none"] = "none"
    corpus: ClassVar[Text | None] = None


class CountedWeighting(Choice):
    """What the weights share that go by frequency."""

    corpus: Text | None = None
    """Texts in which tokens are counted; None estimates their frequencies from their ranks by Zipf's law."""


class ZipfWeighting(CountedWeighting):
    """``ln`` of a token's rank."""

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


Weighting = Annotated[NoWeighting | ZipfWeighting | SifWeighting | TfidfWeighting, Field(discriminator="kind")]


class StaticSection(Section):
    """``[static]``: vectors and weights of the tokens."""

    reduction: Annotated[NoReduction | Reduction, Field(discriminator="kind")] = Reduction(kind="pca")
    """Which directions of the token vectors are kept."""
    pooling: Literal["mean", "token", "first", "last"] = "mean"
    """State that becomes the vector of a token: the mean over it and its special tokens, its own, the first, or the last."""
    weighting: Weighting = SifWeighting()
    """How much less frequent tokens count."""
    vocabulary: Text | None = None
    """File of words and phrases to add, one per line."""
    without: Text | None = r"\[unused\d+\]"
    """Regular expression; tokens that begin with a match are left out."""
    normalize: bool = True
    """Scale vectors of texts to unit length."""
    dtype: Literal["float32", "float16", "int8"] = "float16"
    """Number format of the table on disk; ``int8`` has a scale for each token."""


class AblateSection(Section):
    """``[ablate]``: the suite, the output, and the data of the steps beyond model2vec."""

    suite: Text | None = None
    """A TOML file of tasks, or a suite that comes with adiabat. Required."""
    out: Text | None = None
    """Directory of all models and of the suite's result. Required."""
    texts: Texts = ()
    """Corpora that a step trains on, towards the teacher; empty leaves the step out."""
    queries: Texts = ()
    """Examples, whose queries that step trains on too."""
    pairs: Text | None = None
    """Queries with documents for a last step, which trains both sides apart; None leaves it out."""


class AblatedStatic(StaticSection):
    """``[static]`` of an ablation: settings of all steps."""

    weighting: SifWeighting = SifWeighting()
    """Weights of the steps with SIF; a corpus adds a step that counts tokens in it."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Steps vary some settings themselves."""
        for name in (name for name in ("pooling", "normalize") if name in self.model_fields_set):
            yield name, "must be left out of an ablation, whose steps vary it; leave it out"


class PairsTrainSection(TrainSection):
    """``[pairs]`` of an ablation: training of its last step."""

    learning_rate: PositiveFloat = STATIC_RATE


class FitTrainSection(TeachTrainSection):
    """``[fit]`` of an ablation: training of the step before the last."""

    learning_rate: PositiveFloat = STATIC_RATE


class AblateSettings(Section):
    """Everything that ``adiabat distill ablate`` may be told."""

    ablate: AblateSection = AblateSection()
    static: AblatedStatic = AblatedStatic()
    fit: FitTrainSection = FitTrainSection()
    pairs: PairsTrainSection = PairsTrainSection()
    encoder: EncoderSection = EncoderSection()
    """Blocks of the teacher, and permission to run code."""
    run: RunSection = RunSection()


class DistillStaticSettings(Section):
    """Everything that ``adiabat distill static`` may be told."""

    static: StaticSection = StaticSection()
    encoder: EncoderSection = EncoderSection()
    """Blocks of the teacher, and permission to run code."""
    run: RunSection = RunSection()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Tokens pass through the teacher by themselves, without prompts and pooling."""
        for name in self.encoder.overrides():
            yield f"encoder.{name}", "has no effect on a static model, whose tokens are embedded one by one; leave it out"
