"""Scoring language grids against plain loops over every sentence pair and every paragraph."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.language_grids import QuestionGridSet
from adiabat.data.records import Document, LanguageGridSet, Side, grid_id
from adiabat.evaluation.language_grid_tasks import grid_result, score_nli_grid, score_question_grid
from adiabat.models.device import Precision
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.stats.language_grid_stats import cell_values
from adiabat.stats.samples import GridSample, TaskScores
from adiabat.store.build import build_store
from adiabat.store.vector_store import Store
from tests.stats.brute_force import pair_score
from tests.tiny import tiny_dual, tiny_encoder

LANGUAGES = ("de", "en")
LABELS = ("entailment", "neutral", "contradiction", "entailment", "neutral", "contradiction", "entailment")
# One premise with three hypotheses, as XNLI has it, and one that comes twice in the same words.
PREMISES = ["the cat", "the cat", "the cat", "rain", "rain", "sea", "the cat"]


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(seed=1, shared=False)


@pytest.fixture(scope="module")
def free() -> DualEncoder:
    """Vectors of any length."""
    return tiny_dual(seed=5, settings=EncoderSettings(max_tokens=64, normalize=False))


def sentence_pairs() -> LanguageGridSet:
    premises = tuple({language: f"{language} {text}" for language in LANGUAGES} for text in PREMISES)
    hypotheses = tuple(
        {language: f"{language} says {number}{'xyz'[number % 3]}" for language in LANGUAGES} for number in range(len(LABELS))
    )
    return LanguageGridSet("pairs", LANGUAGES, LABELS, premises, hypotheses)


def questions() -> QuestionGridSet:
    """Six questions, four paragraphs; in German the last paragraph reads like the second."""
    asked = tuple({"de": f"wer ist {number}", "en": f"who is {number}"} for number in "abcdef")
    told = [{"de": f"das ist {number}", "en": f"that is {number}"} for number in range(4)]
    told[3]["de"] = told[1]["de"]
    return QuestionGridSet("asked", LANGUAGES, tuple("abcdef"), asked, tuple(told), np.array([0, 1, 2, 3, 3, 1]))


def store_of(folder: Path, model: DualEncoder, texts: Mapping[str, str]) -> Store:
    documents = [Document(doc_id, text) for doc_id, text in texts.items()]
    return build_store(model, lambda: iter(documents), folder / "store", dtype="float32", source="corpus", encoder_name="tiny").store


def hypotheses_of(data: LanguageGridSet) -> dict[str, str]:
    return {grid_id(pair, language): data.hypotheses[pair][language] for pair in range(len(data)) for language in LANGUAGES}


def encoded(model: DualEncoder, every: Sequence[Mapping[str, str]], language: str, side: Side) -> np.ndarray:
    return model.encode([texts[language] for texts in every], side=side, precision="fp32").astype(np.float64)


def pnd_by_loops(queries: np.ndarray, documents: np.ndarray, cells: GridSample) -> float:
    """Of all (entailment, other) pairs of sentence pairs, the share in which entailment is not closer; of retrieval, for one premise."""
    if cells.comparison.startswith("retrieval"):
        every = [(i, j) for i, j in np.ndindex(len(LABELS), len(LABELS)) if LABELS[i] == "entailment" and PREMISES[i] != PREMISES[j]]
        asked = [(i, j) for i, j in every if cells.comparison == f"retrieval entailment-{LABELS[j]}"]
        near, far = ([pair_score(queries[pair[0]], documents[pair[side]], cells.similarity) for pair in asked] for side in (0, 1))
        return sum(other >= one for one, other in zip(near, far, strict=True)) / len(asked)
    scores = [pair_score(one, other, cells.similarity) for one, other in zip(queries, documents, strict=True)]
    entailed = [score for score, label in zip(scores, LABELS, strict=True) if label == "entailment"]
    rest = [score for score, label in zip(scores, LABELS, strict=True) if f"entailment-{label}" == cells.comparison]
    return sum(other >= one for one in entailed for other in rest) / (len(entailed) * len(rest))


@pytest.mark.parametrize("name", ["model", "free"])
def test_every_cell_of_a_grid_of_sentence_pairs_equals_loops(name: str, request: pytest.FixtureRequest) -> None:
    model, data = request.getfixturevalue(name), sentence_pairs()
    scores = score_nli_grid(model, data)
    similarities = ["cosine"] if name == "model" else ["cosine", "distance", "dot"]
    assert [one.key for one in scores.samples] == [
        (measure, similarity) for measure in ("PND", "PND retrieval") for similarity in similarities
    ]
    asked = [encoded(model, data.premises, language, "query") for language in LANGUAGES]
    told = [encoded(model, data.hypotheses, language, "document") for language in LANGUAGES]
    for cells in scores.grids:
        np.testing.assert_allclose(cell_values(cells), [[pnd_by_loops(one, other, cells) for other in told] for one in asked])
    for sample in scores.samples:
        own = [cells for cells in scores.grids if cells.comparison.startswith("retrieval") == sample.measure.endswith("retrieval")]
        tables = [cell_values(cells) for cells in own if cells.similarity == sample.similarity]
        assert sample.values.mean() == pytest.approx(np.mean(tables), abs=1e-14)


def test_units_of_sentence_pairs_are_premises_named_by_their_first_pair(model: DualEncoder) -> None:
    scores = score_nli_grid(model, sentence_pairs())
    assert (scores.task, scores.kind, scores.unit, scores.documents) == ("pairs", "nli_grid", "premise", 14)
    assert (scores.units, scores.texts) == (["0", "3", "5"], ["en the cat", "en rain", "en sea"])
    assert {cells.values.shape for cells in scores.grids} == {(2, 2, 3)}
    assert [sample.values.shape for sample in scores.samples] == [(3,), (3,)]


def test_hypotheses_of_a_store_are_scored_by_their_stored_vectors(free: DualEncoder, tmp_path: Path) -> None:
    data = sentence_pairs()
    # Not in the order of the grid, and with another document between them.
    texts = dict(sorted({**hypotheses_of(data), "3": "another"}.items(), key=lambda item: item[1]))
    store = store_of(tmp_path, free, texts)
    scores = score_nli_grid(free, data, hypotheses=store)
    asked = [encoded(free, data.premises, language, "query") for language in LANGUAGES]
    told = [store.gather(store.rows([grid_id(pair, language) for pair in range(7)])).astype(np.float64) for language in LANGUAGES]
    for cells in scores.grids:
        np.testing.assert_allclose(cell_values(cells), [[pnd_by_loops(one, other, cells) for other in told] for one in asked])
    assert scores.documents == 15


def test_languages_left_out_are_noted_beside_scores_and_on_the_page(model: DualEncoder) -> None:
    data = replace(sentence_pairs(), incomplete={"ar": "g.jsonl:3"})
    scores = score_nli_grid(model, data)
    assert data.notes == ("languages left out, for rows without them: ar (g.jsonl:3); complete these rows to have them measured",)
    assert data.notes[0] in scores.notes
    assert data.notes[0] in grid_result(scores, None, data, role="target", seed=0, resamples=100).notes


def test_missing_hypotheses_are_counted_and_named(model: DualEncoder, tmp_path: Path) -> None:
    store = store_of(tmp_path, model, {"a": "a document"})
    with pytest.raises(
        DataError, match=r"pairs: every hypothesis must be in the store .*, got 7 in de that are not: 0:de, .*; embed the grid file first"
    ):
        score_nli_grid(model, sentence_pairs(), hypotheses=store)


def test_similarities_can_be_those_of_another_model(model: DualEncoder) -> None:
    scores = score_nli_grid(model, sentence_pairs(), similarities=["cosine", "distance"])
    assert [(cells.comparison, cells.similarity) for cells in scores.grids] == [
        (f"{kind}entailment-{other}", similarity)
        for kind in ("", "retrieval ")
        for similarity in ("cosine", "distance")
        for other in ("neutral", "contradiction")
    ]
    asked = score_question_grid(model, questions(), similarities=["distance"])
    assert {sample.similarity for sample in asked.samples} == {"distance"}


def test_a_text_that_repeats_is_encoded_once_and_progress_is_told(model: DualEncoder) -> None:
    seen: list[tuple[str, int, int]] = []
    score_nli_grid(model, sentence_pairs(), watch=Watch(progress=lambda *told: seen.append(told)))
    # Three different premises and seven different hypotheses, in two languages each.
    assert ("encoding pairs", 6, 6) in seen
    assert seen[-1] == ("encoding pairs", 14, 14)


@pytest.mark.parametrize("name", ["model", "free"])
def test_every_question_in_every_cell_equals_loops(name: str, request: pytest.FixtureRequest) -> None:
    model, data = request.getfixturevalue(name), questions()
    scores = score_question_grid(model, data)
    values = {(cells.comparison, cells.similarity): cells.values for cells in scores.grids}
    asked = {language: encoded(model, data.questions, language, "query") for language in LANGUAGES}
    told = {language: encoded(model, data.paragraphs, language, "document") for language in LANGUAGES}
    lost_somewhere = 0
    for (comparison, similarity), found in values.items():
        for a, b, i in np.ndindex(2, 2, 6):
            texts = [paragraph[LANGUAGES[b]] for paragraph in data.paragraphs]
            points = [pair_score(asked[LANGUAGES[a]][i], document, similarity) for document in told[LANGUAGES[b]]]
            # Of each text once.
            by_text = dict(zip(texts, points, strict=True))
            own = by_text.pop(texts[data.answers[i]])
            lost = sum(score >= own for score in by_text.values())
            assert found[a, b, i] == pytest.approx(float(lost == 0) if comparison == "P@1" else lost / len(by_text))
            lost_somewhere += lost
    assert lost_somewhere > 0
    assert set(values) == {
        (one, other) for one in ("P@1", "PND") for other in (["cosine"] if name == "model" else ["cosine", "distance", "dot"])
    }


def test_samples_of_questions_are_means_over_cells_and_p_at_1_is_the_main_one(model: DualEncoder) -> None:
    scores = score_question_grid(model, questions())
    assert (scores.task, scores.kind, scores.unit, scores.documents) == ("asked", "question_grid", "question", 4)
    assert (scores.units, scores.texts[:2]) == (list("abcdef"), ["who is a", "who is b"])
    assert [sample.measure for sample in scores.samples] == ["P@1", "RR", "PND"]
    for cells, place in zip(scores.grids, (0, 2), strict=True):
        np.testing.assert_allclose(scores.samples[place].values, cells.values.mean(axis=(0, 1)), atol=1e-7)


def test_paragraphs_of_equal_text_are_one_answer_and_are_counted(model: DualEncoder) -> None:
    data = questions()
    scores = score_question_grid(model, data)
    assert "paragraphs with the text of an earlier one are the same answer: 1 in de" in scores.notes
    # Whether a question names the one or the other changes nothing in German, and does in English.
    other = QuestionGridSet("asked", LANGUAGES, data.ids, data.questions, data.paragraphs, np.array([0, 3, 2, 1, 1, 3]))
    pairs = list(zip(scores.grids, score_question_grid(model, other).grids, strict=True))
    assert all((one.values[:, 0] == two.values[:, 0]).all() for one, two in pairs)
    assert any((one.values[:, 1] != two.values[:, 1]).any() for one, two in pairs)


def mute(monkeypatch: pytest.MonkeyPatch, word: str, value: float) -> None:
    """From now on models give this value throughout for texts that begin with the word."""
    encode = DualEncoder.encode

    def muted(self: DualEncoder, texts: Sequence[str], *, side: Side, precision: Precision, on_progress: object) -> np.ndarray:
        vectors = encode(self, texts, side=side, precision=precision)
        vectors[[text.startswith(word) for text in texts]] = value
        return vectors

    monkeypatch.setattr(DualEncoder, "encode", muted)


def test_zero_vectors_are_scored_and_counted(model: DualEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert score_nli_grid(model, sentence_pairs()).facts == {}
    mute(monkeypatch, "de", 0.0)
    scores = score_nli_grid(model, sentence_pairs())
    assert scores.facts == {"zero vectors": 14.0}
    assert "14 texts have a zero vector, as near to one text as to another (premise in de: 7, hypothesis in de: 7)" in scores.notes
    # All pairs score 0 there, and ties are errors.
    assert [cell_values(cells)[0].tolist() for cells in scores.grids] == [[1.0, 1.0]] * 4


@pytest.mark.parametrize(("score", "data", "word"), [(score_nli_grid, sentence_pairs(), "de"), (score_question_grid, questions(), "das")])
def test_vectors_that_are_not_finite_are_refused(
    model: DualEncoder, monkeypatch: pytest.MonkeyPatch, score: Callable[..., TaskScores], data: LanguageGridSet, word: str
) -> None:
    mute(monkeypatch, word, np.nan)
    with pytest.raises(DataError, match=f"{data.name}: vectors must be finite"):
        score(model, data)


def before_and_after(model: DualEncoder) -> tuple[TaskScores, TaskScores]:
    other = DualEncoder(tiny_encoder(seed=9, settings=model.query.settings), model.document, "before")
    return score_nli_grid(other, sentence_pairs()), score_nli_grid(model, sentence_pairs())


def test_a_result_of_before_and_after_holds_what_both_scored(model: DualEncoder) -> None:
    before, after = before_and_after(model)
    result = grid_result(after, before, sentence_pairs(), role="retain", seed=0, resamples=100)
    assert (result.name, result.kind, result.role, result.main, result.queries, result.documents) == (
        "pairs",
        "grid",
        "retain",
        "PND",
        14,
        14,
    )
    # Three sentence pairs are entailed, two neutral, two contradicted: 6 + 6 comparisons; 3 + 4 of them are of different premises.
    assert (result.languages, result.pairs) == (["de", "en"], 4 * (12 + 7))
    for table, now, was in zip(result.grid, after.grids, before.grids, strict=True):
        assert (table.comparison, table.after, table.before) == (now.comparison, cell_values(now).tolist(), cell_values(was).tolist())
    change = result.main_change()
    assert change.after == pytest.approx(np.mean([table.after for table in result.grid[:2]]))
    assert change.before == pytest.approx(np.mean([table.before for table in result.grid[:2]]))
    assert result.notes == [*after.notes]


def test_a_grid_says_that_signs_were_flipped_more_often_than_asked(model: DualEncoder) -> None:
    before, after = before_and_after(model)
    result = grid_result(after, before, sentence_pairs(), role="target", seed=0, resamples=50)
    assert any("flipped 80 times in the cells of the grid, not measure.resamples = 50" in note for note in result.notes)
    alone = grid_result(after, None, sentence_pairs(), role="target", seed=0, resamples=50)
    assert (list(after.notes), alone.grid[0].before, alone.main_change().before) == (alone.notes, None, None)


def test_a_grid_against_itself_changes_no_cell(model: DualEncoder) -> None:
    scores = score_nli_grid(model, sentence_pairs(), watch=SILENT)
    result = grid_result(scores, scores, sentence_pairs(), role="target", seed=0, resamples=200)
    assert {one.difference for one in result.changes} == {0.0}
    assert {(table.improved, table.worsened, table.improved_z, table.worsened_z) for table in result.grid} == {(0, 0, 0, 0)}
