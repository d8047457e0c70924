"""Measuring language grids against plain loops over every sentence pair."""

from collections.abc import Callable

import numpy as np
import pytest

from adiabat.config import MeasureSection
from adiabat.data.records import LanguageGridSet, grid_id
from adiabat.errors import DataError
from adiabat.measure import tasks
from adiabat.measure.systems import System
from adiabat.measure.tasks import measure_languages
from adiabat.model.encoder import EncoderSettings
from adiabat.model.towers import DualEncoder
from adiabat.store.embeddings import Store
from adiabat.watch import SILENT
from tests.measure.brute_force import pair_score
from tests.tiny import tiny_dual, tiny_encoder


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(seed=1)


LANGUAGES = ("de", "en")
LABELS = ("entailment", "neutral", "contradiction", "entailment", "neutral", "contradiction", "entailment")
# One premise with three hypotheses, as XNLI has it, and one that comes twice in the same words.
PREMISES = ["the cat", "the cat", "the cat", "rain", "rain", "sea", "the cat"]


def sentence_pairs() -> LanguageGridSet:
    premises = tuple({language: f"{language} {text}" for language in LANGUAGES} for text in PREMISES)
    hypotheses = tuple(
        {language: f"{language} says {number}{'xyz'[number % 3]}" for language in LANGUAGES} for number in range(len(LABELS))
    )
    return LanguageGridSet("pairs", LANGUAGES, LABELS, premises, hypotheses)


def grid_store(make_store: Callable[..., Store], model: DualEncoder, data: LanguageGridSet) -> Store:
    keys = [(pair, language) for pair in range(len(data)) for language in LANGUAGES]
    return make_store(model, [data.hypotheses[pair][language] for pair, language in keys], [grid_id(*key) for key in keys])


def grid_by_loops(
    model: DualEncoder, store: Store, data: LanguageGridSet, query: str, document: str, against: str, similarity: str
) -> float:
    """PND of one language pair: of all (entailment, other) pairs of sentence pairs, the share in which entailment is not closer."""
    texts = [premise[query] for premise in data.premises]
    vectors = model.encode(texts, side="query", precision="fp32").astype(np.float64)
    rows = store.rows([grid_id(pair, document) for pair in range(len(data))])
    documents = store.gather(rows).astype(np.float64)
    scores = [pair_score(one, other, similarity) for one, other in zip(vectors, documents, strict=True)]
    entailed = [score for score, label in zip(scores, data.labels, strict=True) if label == "entailment"]
    rest = [score for score, label in zip(scores, data.labels, strict=True) if label == against]
    return sum(other >= one for one in entailed for other in rest) / (len(entailed) * len(rest))


@pytest.mark.parametrize("normalize", [True, False])
def test_every_cell_of_the_grid_equals_loops(make_store: Callable[..., Store], normalize: bool) -> None:
    model = tiny_dual(seed=5, settings=EncoderSettings(max_tokens=64, normalize=normalize))
    before = DualEncoder(tiny_encoder(seed=6, settings=model.query.settings), model.document, "before")
    data = sentence_pairs()
    store = grid_store(make_store, model, data)
    result = measure_languages(
        System(model, store), System(before, store), data, role="retain", settings=MeasureSection(resamples=200), seed=0, watch=SILENT
    )
    assert {table.similarity for table in result.grid} == ({"cosine"} if normalize else {"cosine", "distance"})
    for table in result.grid:
        against = table.comparison.removeprefix("entailment-")
        for tower, cells in ((model, table.after), (before, table.before)):
            by_hand = [[grid_by_loops(tower, store, data, a, b, against, table.similarity) for b in LANGUAGES] for a in LANGUAGES]
            assert cells is not None
            np.testing.assert_allclose(cells, by_hand)
    assert (result.kind, result.role, result.main, result.queries, result.languages) == ("grid", "retain", "PND", 14, ["de", "en"])
    cosine = [table.after for table in result.grid if table.similarity == "cosine"]
    assert result.main_change().after == pytest.approx(np.mean(cosine))


def test_a_premise_that_repeats_is_encoded_once_and_used_everywhere(model: DualEncoder, make_store: Callable[..., Store]) -> None:
    data = sentence_pairs()
    vectors = tasks._premises(model, data, SILENT)
    assert {language: rows.shape[0] for language, rows in vectors.items()} == dict.fromkeys(LANGUAGES, 7)
    for language, rows in vectors.items():
        plain = model.encode([premise[language] for premise in data.premises], side="query", precision="fp32")
        np.testing.assert_allclose(rows, plain, atol=1e-6)
        assert (rows[0] == rows[6]).all()
        assert not (rows[0] == rows[3]).all()


def test_a_grid_says_that_it_was_resampled_more_often_than_asked(model: DualEncoder, make_store: Callable[..., Store]) -> None:
    data = sentence_pairs()
    store = grid_store(make_store, model, data)
    result = measure_languages(
        System(model, store), System(model, store), data, role="target", settings=MeasureSection(resamples=100), seed=0, watch=SILENT
    )
    assert any("resampled 160 times, not measure.resamples = 100" in note for note in result.notes)


def test_a_grid_against_itself_changes_no_cell(model: DualEncoder, make_store: Callable[..., Store]) -> None:
    data = sentence_pairs()
    store = grid_store(make_store, model, data)
    result = measure_languages(
        System(model, store), System(model, store), data, role="target", settings=MeasureSection(resamples=200), seed=0, watch=SILENT
    )
    assert {one.difference for one in result.changes} == {0.0}
    assert {(table.improved, table.worsened, table.improved_z, table.worsened_z) for table in result.grid} == {(0, 0, 0, 0)}


def test_missing_hypotheses_are_counted_and_named(model: DualEncoder, make_store: Callable[..., Store]) -> None:
    store = make_store(model, ["a document"])
    with pytest.raises(
        DataError, match=r"pairs: every hypothesis must be in the store .*, got 7 in de that are not: 0:de, .*; embed the grid file first"
    ):
        measure_languages(System(model, store), None, sentence_pairs(), role="target", settings=MeasureSection(), seed=0, watch=SILENT)
