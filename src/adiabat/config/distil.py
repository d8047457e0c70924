"""Settings of ``adiabat distil static``: from a teacher to a table with one vector per token (mission E1)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.faults import Need
from adiabat.config.section import Section, Text, Texts
from adiabat.config.shared import EncoderSection, RunSection
from adiabat.config.teach import STATIC_RATE, TeachTrainSection
from adiabat.config.train import TrainSection

USUAL_DIMS = 256
"""Source 004, which distils every model to it."""


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
    """Everything that ``adiabat distil ablate`` may be told."""

    ablate: AblateSection = AblateSection()
    static: AblatedStatic = AblatedStatic()
    fit: FitTrainSection = FitTrainSection()
    pairs: PairsTrainSection = PairsTrainSection()
    encoder: EncoderSection = EncoderSection()
    """Of the teacher: which blocks of it, and what code may run."""
    run: RunSection = RunSection()


class DistilStaticSettings(Section):
    """Everything that ``adiabat distil static`` may be told."""

    static: StaticSection = StaticSection()
    encoder: EncoderSection = EncoderSection()
    """Of the teacher: which blocks of it, and what code may run."""
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _takes_the_teacher_as_it_is(self) -> Self:
        if idle := [f"encoder.{name}" for name in self.encoder.overrides()]:
            raise ValueError(f"{' and '.join(idle)} has no effect on a static model, whose tokens pass by themselves; leave it out")
        return self
