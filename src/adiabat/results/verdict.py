"""What a comparison says, and why it says no more."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

Word = Literal["better", "not worse", "undecided", "worse"]
"""The four verdicts; `adiabat.stats.judgement` has the rule."""

WORDS: tuple[Word, ...] = get_args(Word)


class Reason(StrEnum):
    """Why a verdict is undecided, or less certain than it looks; values are phrases that follow a name."""

    ONE_MODEL = "model and baseline are one"
    """Both have the same weights, so nothing can differ."""

    TRAINED_ON = "trained on it"
    """A model trained or validated on more than a few of the units, and too few others are left."""

    CELLS_OVER_RUNS = "cells are means over runs"
    """Cells of a language grid over several runs: their test does not cover the spread of runs."""

    FEW_CLUSTERS = "too few independent units"
    """Units depend on one another, form too few clusters, and are drawn singly: intervals are too narrow."""

    MANY_COMPARISONS = "does not hold among all comparisons"
    """The change alone is shown, but not after the correction over its family."""

    NO_MARGIN = "a share of the baseline is no margin"
    """The baseline is not above 0, so a share of it excludes nothing."""

    FEW_UNITS = "very few units"
    """Fewer than `FEWEST_UNITS` units, or clusters, are drawn."""

    LOSS_POSSIBLE = "a loss of the margin is not excluded"
    """The data still allow a loss of the margin."""

    TRAINING_UNKNOWN = "training data unknown"
    """Nobody can tell what a model trained on, or whether it is among the units."""

    SEEN_DOCUMENTS = "relevant documents answered training queries"
    """The change may be memory of these documents, and no residual collection could decide."""

    NEAR_DUPLICATES = "near duplicates of training queries"
    """More than a tenth of the units nearly equal a query of training."""

    RUNS_DIFFER = "runs differ in more than the seed"
    """The spread of runs is also that of other settings."""

    EQUAL_RUNS = "runs have equal weights"
    """A run is a copy of another, so that intervals over runs are too narrow."""


EXPLAINING = frozenset({Reason.ONE_MODEL, Reason.MANY_COMPARISONS})
"""Reasons that explain a word and take nothing from it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word, and the reasons that made or limit it, the weightiest first."""

    word: Word
    reasons: tuple[Reason, ...] = ()
