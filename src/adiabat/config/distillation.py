"""Settings of ``adiabat distill``: static models and trained students."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.dual_training import BatchTables, Kept, TrainSection, TrainSettings
from adiabat.config.dual_training_data import MixtureSection, Shares
from adiabat.config.faults import Need, shown
from adiabat.config.reader import checked
from adiabat.config.section import Choice, Exhausted, Section, Text, Texts, each_once
from adiabat.config.shared import EncoderSection, EncoderTables, RunTables
from adiabat.config.training_choices import RegressionLoss, TrainLoss
from adiabat.core.wording import option

Width = Literal["auto", "pca", "projection", "none"]


# --- Trained students ---


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


class TextsSection(Section):
    """Unlabelled texts."""

    texts: Annotated[Texts, each_once("source")] = ()
    """Corpora of documents: files, folders or hub data sets. An ablation without any skips the step that
    trains towards the teacher."""
    queries: Annotated[Texts, each_once("source")] = ()
    """Files of examples; only their queries are used."""


class FitDataSection(StudentDataSection, TextsSection):
    """``[data]`` of ``distill fit``: unlabelled texts."""


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
    """Loss to minimise."""
    keep: Kept = "best"
    """Weights to save, as in training."""


STATIC_RATE = 5e-3
"""Learning rate of a table of token vectors; it is high because a batch updates few of them."""


class TeachSettings(BatchTables):
    """Settings that ``distill fit`` and ``distill multilingual`` share; those of the encoder belong to the
    student.
    """

    distill: DistillSection = DistillSection()
    teacher: EncoderSection = EncoderSection()
    """Encoder settings of all teachers."""
    data: StudentDataSection = StudentDataSection()
    train: TeachTrainSection = TeachTrainSection()

    def training(self, **tables: Mapping[str, Any]) -> TrainSettings:
        """Settings of the student's training run."""
        names = ("encoder", "batches", "mixture", "train", "memory", "run")
        here: dict[str, dict[str, Any]] = {
            name: getattr(self, name).model_dump(exclude_unset=True) for name in names
        }
        # Defaults of a student that differ from those of training, and so must be stated there.
        here["train"] |= {"loss": self.train.loss.model_dump(), "keep": self.train.keep}
        for name, table in tables.items():
            here[name] = {**here.get(name, {}), **table}
        return checked(TrainSettings, here)


class FitSettings(TeachSettings):
    """All settings of ``adiabat distill fit``."""

    data: FitDataSection = FitDataSection()


class TranslationMixtureSection(MixtureSection):
    """``[mixture]`` of languages. The default rule oversamples languages with few texts."""

    rule: Shares = Shares(kind="temperature")
    """Share of each language in a pass."""
    exhausted: Exhausted = "cycle"
    """When a language runs out within a pass: repeat it until the largest language has been read (cycle),
    stop the pass, or continue with the others (drop)."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Languages have no weights."""
        if self.rule.kind == "weights":
            allowed = "proportional, equal or temperature"
            yield "rule", f'must be {allowed}, got "weights", which languages lack; choose another'


class MultilingualSettings(TeachSettings):
    """All settings of ``adiabat distill multilingual``."""

    data: ParallelDataSection = ParallelDataSection()
    mixture: TranslationMixtureSection = TranslationMixtureSection()


# --- Static models ---

USUAL_DIMS = 256
"""Default width of model2vec (van Dongen and Tulkens)."""


class Reduction(Choice):
    """Principal components (pca; randomized is faster for teachers with thousands of dimensions), independent
    components (ica), or none.
    """

    kind: Literal["none", "pca", "randomized", "ica"] = "pca"
    dims: PositiveInt | None = None
    """Dimensions to keep; None takes 256, or the teacher's width if that is smaller."""

    needs = (Need("dims", "kind", ("pca", "randomized", "ica")),)
    """Without components, the width is the teacher's."""


class Weighting(Choice):
    """Weight of a token: ``ln`` of its frequency rank (zipf), smooth inverse frequency (sif, Arora et al.
    2017), inverse document frequency (tfidf), or equal for all (none).
    """

    kind: Literal["none", "zipf", "sif", "tfidf"] = "sif"
    corpus: Text | None = None
    """Texts in which tokens are counted; None estimates the frequencies from the ranks of the tokens by
    Zipf's law, but for ``tfidf``."""
    a: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    """``a`` of smooth inverse frequency, ``a / (a + p)`` for a token with probability ``p``."""

    needs = (
        Need("corpus", "kind", ("zipf", "sif", "tfidf")),
        Need("a", "kind", ("sif",)),
    )
    """Equal weights need no counts."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Documents of a token have to be counted."""
        if self.kind == "tfidf" and self.corpus is None:
            advice = f'add {option("corpus")}, or set static.weighting = "sif" or "zipf"'
            yield "corpus", f'must be given with static.weighting = "tfidf", got none; {advice}'


class StaticSection(Section):
    """``[static]``: vectors and weights of the tokens."""

    tower: Literal["query", "document"] | None = None
    """Tower of the teacher to distill. None takes the only tower, or refuses a teacher whose towers differ,
    such as a job of ``adiabat tune``."""
    reduction: Reduction = Reduction()
    """Dimensionality reduction of the token vectors."""
    pooling: Literal["mean", "token", "first", "last"] = "mean"
    """How a token's vector is taken from the teacher's hidden states: their mean including special tokens,
    the token's own, the first, or the last."""
    weighting: Weighting = Weighting()
    """Weights of the tokens by frequency."""
    vocabulary: Text | None = None
    """File of words and phrases to add, one per line."""
    without: Text | None = r"\[unused\d+\]"
    """Regular expression of tokens to leave out; it is matched at the beginning of a token."""
    normalize: bool = True
    """Scale text embeddings to unit length."""
    dtype: Literal["float32", "float16", "int8"] = "float16"
    """Number format of the token table on disk; ``int8`` stores a scale for each token."""


# --- Ablations ---


class AblateSection(TextsSection):
    """``[ablate]``: the suite, the output directory, and the data of the training steps."""

    suite: Text | None = None
    """A TOML file of tasks, or a suite that comes with adiabat. Required."""
    out: Text | None = None
    """Output directory of all models and the result of the suite. Required."""
    pairs: Text | None = None
    """Queries with documents for the last step, which trains separate query and document tables; None skips
    the step."""


class AblatedStatic(StaticSection):
    """``[static]`` of an ablation: settings that all steps share."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Settings that the steps vary are unset."""
        if (kind := self.weighting.kind) != "sif":
            told = f'must be "sif" in an ablation, whose steps set the other kinds, got {shown(kind)}'
            yield "weighting.kind", f"{told}; leave it out"
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


class AblateSettings(EncoderTables, RunTables):
    """All settings of ``adiabat distill ablate``; those of the teacher's encoder are blocks to keep, and
    permission to run its code.
    """

    ablate: AblateSection = AblateSection()
    static: AblatedStatic = AblatedStatic()
    fit: FitTrainSection = FitTrainSection()
    pairs: PairsTrainSection = PairsTrainSection()


class DistillStaticSettings(EncoderTables, RunTables):
    """All settings of ``adiabat distill static``; those of the teacher's encoder are blocks to keep, and
    permission to run its code.
    """

    static: StaticSection = StaticSection()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Settings of prompts and pooling are unset, because the teacher embeds single tokens."""
        for name in self.encoder.overrides():
            yield (
                f"encoder.{name}",
                "has no effect on a static model, whose tokens are embedded one by one; leave it out",
            )
