"""Every measure of every task knows between which values it lies, so that no interval leaves them."""

from collections.abc import Callable

import numpy as np
import pytest

from adiabat.config.shared import MeasureSection
from adiabat.core.progress import SILENT
from adiabat.core.ragged import Ragged
from adiabat.data.labelled import LabelledPairs, LabelledTexts, ParallelTexts, ScoredPairs
from adiabat.evaluation.labels import score_classification, score_clustering
from adiabat.evaluation.language_grid_measures import measure_grid
from adiabat.evaluation.language_grid_tasks import measure_question_grid
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.similarity import score_bitext, score_pair_classification, score_sts, score_words
from adiabat.evaluation.systems import System
from adiabat.stats.samples import CORRELATION, SHARE, Sample, ranking_bounds
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store
from tests.evaluation.given_vectors import sentences
from tests.tiny import tiny_dual

A, B = sentences(24, seed=1), sentences(24, seed=2)
HALVES = ["one", "other"] * 12


def correlations() -> list[Sample]:
    pairs = ScoredPairs("pairs", A, B, np.arange(24.0), [""] * 24)
    return [
        *score_sts(tiny_dual(), pairs, side="query", name="sts", watch=SILENT).samples,
        *score_words(tiny_dual(), pairs, side="query", name="words", watch=SILENT).samples,
    ]


def pairs_and_texts() -> list[Sample]:
    texts, pairs = LabelledTexts("texts", A, HALVES), LabelledPairs("pairs", A, B, np.arange(24) % 2 == 0)
    model = tiny_dual()
    return [
        *score_pair_classification(model, pairs, side="query", name="pairs", watch=SILENT).samples,
        *score_bitext(model, ParallelTexts("bitext", A, B, ("en", "de")), side="query", name="bitext", watch=SILENT).samples,
        *score_classification(model, texts, LabelledTexts("test", B, HALVES), side="query", name="texts", seed=0, watch=SILENT).samples,
        *score_clustering(model, texts, side="query", name="texts", seed=0, watch=SILENT).samples,
    ]


def grids() -> list[Sample]:
    random = np.random.default_rng(0)
    labels, premises = ["entailment", "neutral", "contradiction"] * 4, np.repeat(np.arange(4), 3)
    pairs, _ = measure_grid({"cosine": random.random((1, 1, 12))}, labels, rows=["a"], columns=["b"], clusters=premises)
    vectors = {"a": random.random((5, 4)).astype(np.float32)}
    questions, _ = measure_question_grid(vectors, vectors, {"a": np.arange(5)}, similarities=["cosine"])
    return [*pairs, *questions]


@pytest.mark.parametrize(("make", "bounds"), [(correlations, CORRELATION), (pairs_and_texts, SHARE), (grids, SHARE)])
def test_measures_know_where_they_end(make: Callable[[], list[Sample]], bounds: tuple[float, float]):
    samples = make()
    assert {one.measure: one.bounds for one in samples} == {one.measure: bounds for one in samples}


def test_measures_of_rankings_are_shares_and_counts_are_not(make_store: Callable[..., Store]):
    model = tiny_dual(seed=1)
    ones = Ragged.of([[1], [1], [1]])
    asked = AddressedSet("set", ["0", "1", "2"], A[:3], Ragged.of([[0], [1], [2]]), ones, Ragged.of([[]] * 3))
    settings = MeasureSection(measures=("nDCG@10", "NumRet"))
    scores = score_retrieval(System(model, make_store(model, B)), asked, settings=settings, watch=SILENT)
    assert {one.measure: one.bounds for one in scores.samples} == {"nDCG@10": SHARE, "NumRet": None, "PND": SHARE, "PND pooled": SHARE}
    assert (ranking_bounds("RR"), ranking_bounds("NumRelRet@5")) == (SHARE, None)


def test_only_the_pseudo_values_of_a_grid_are_no_values_of_their_own():
    assert [one.pseudo_values for one in grids()] == [True, False, False, False]
