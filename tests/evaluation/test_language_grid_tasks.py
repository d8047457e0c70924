"""Language grids of sentence pairs and of questions, against plain loops."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.core.margin import Margin
from adiabat.data.language_grids import QuestionGridSet
from adiabat.data.records import Document, LanguageGridSet, Side, grid_id
from adiabat.evaluation.evaluate import dataset_result
from adiabat.evaluation.language_grid_tasks import measure_question_grid, score_nli_grid, score_question_grid
from adiabat.models.device import Precision
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import DatasetResult
from adiabat.results.verdict import Reason
from adiabat.stats.grid_comparison import cell_values
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
    told = [f"says {number}{'xyz'[number % 3]}" for number in range(len(LABELS))]
    hypotheses = tuple({language: f"{language} {text}" for language in LANGUAGES} for text in told)
    return LanguageGridSet("pairs", LANGUAGES, LABELS, premises, hypotheses)


def questions() -> QuestionGridSet:
    """Six questions, four paragraphs; in German the last paragraph reads like the second."""
    asked = tuple({"de": f"wer ist {number}", "en": f"who is {number}"} for number in "abcdef")
    told = [{"de": f"das ist {number}", "en": f"that is {number}"} for number in range(4)]
    told[3]["de"] = told[1]["de"]
    answers = np.array([0, 1, 2, 3, 3, 1])
    return QuestionGridSet("asked", LANGUAGES, tuple("abcdef"), asked, tuple(told), answers)


def store_of(folder: Path, model: DualEncoder, texts: Mapping[str, str]) -> Store:
    documents = [Document(doc_id, text) for doc_id, text in texts.items()]
    about = {"dtype": "float32", "source": "corpus", "encoder_name": "tiny"}
    return build_store(model, lambda: iter(documents), folder / "store", **about).store


built = partial(dataset_result, role="retain", seed=0, resamples=50)


def hypotheses_of(data: LanguageGridSet) -> dict[str, str]:
    cells = product(range(len(data)), LANGUAGES)
    return {grid_id(pair, language): data.hypotheses[pair][language] for pair, language in cells}


def encoded(model: DualEncoder, every: Sequence[Mapping[str, str]], language: str, side: Side) -> np.ndarray:
    return model.encode([texts[language] for texts in every], side=side, precision="fp32").astype(np.float64)


def pnd_by_loops(queries: np.ndarray, documents: np.ndarray, cells: GridSample) -> float:
    """Of all (entailment, other) pairs of sentence pairs, the share in which entailment is not closer; of
    retrieval, for one premise.
    """
    other = cells.comparison.rpartition("-")[2]
    rows = range(len(LABELS))
    pairs = [(i, j) for i, j in product(rows, rows) if (LABELS[i], LABELS[j]) == ("entailment", other)]
    retrieval = cells.comparison == f"retrieval entailment-{other}"
    if retrieval:
        pairs = [(i, j) for i, j in pairs if PREMISES[i] != PREMISES[j]]
    lost = 0
    for i, j in pairs:
        near = pair_score(queries[i], documents[i], cells.similarity)
        lost += pair_score(queries[i if retrieval else j], documents[j], cells.similarity) >= near
    return lost / len(pairs)


@pytest.mark.parametrize("name", ["model", "free"])
def test_every_cell_of_a_grid_of_sentence_pairs_equals_loops(
    name: str, request: pytest.FixtureRequest
) -> None:
    model, data = request.getfixturevalue(name), sentence_pairs()
    scores = score_nli_grid(model, data)
    similarities = ["cosine"] if name == "model" else ["cosine", "distance", "dot"]
    assert [one.key for one in scores.samples] == [
        (measure, similarity) for measure in ("PND", "PND retrieval") for similarity in similarities
    ]
    asked = [encoded(model, data.premises, language, "query") for language in LANGUAGES]
    told = [encoded(model, data.hypotheses, language, "document") for language in LANGUAGES]
    tables = {sample.key: [] for sample in scores.samples}
    for cells in scores.grids:
        values = cell_values(cells)
        by_loops = [[pnd_by_loops(one, other, cells) for other in told] for one in asked]
        np.testing.assert_allclose(values, by_loops)
        measure = "PND retrieval" if cells.comparison.startswith("retrieval") else "PND"
        tables[measure, cells.similarity].append(values)
    for sample in scores.samples:
        assert sample.values.mean() == pytest.approx(np.mean(tables[sample.key]), abs=1e-14)


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
    ids = [[grid_id(pair, language) for pair in range(7)] for language in LANGUAGES]
    told = [store.gather(store.rows(of)).astype(np.float64) for of in ids]
    for cells in scores.grids:
        by_loops = [[pnd_by_loops(one, other, cells) for other in told] for one in asked]
        np.testing.assert_allclose(cell_values(cells), by_loops)
    assert scores.documents == 15


def test_missing_hypotheses_are_counted_and_named(model: DualEncoder, tmp_path: Path) -> None:
    store = store_of(tmp_path, model, {"a": "a document"})
    told = r"pairs: every hypothesis must be in the store .*, it lacks 7 hypotheses: 0:de; .*; embed the grid"
    with pytest.raises(DataError, match=told):
        score_nli_grid(model, sentence_pairs(), hypotheses=store)


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
            query = asked[LANGUAGES[a]][i]
            points = [pair_score(query, document, similarity) for document in told[LANGUAGES[b]]]
            # Of each text once.
            by_text = dict(zip(texts, points, strict=True))
            own = by_text.pop(texts[data.answers[i]])
            lost = sum(score >= own for score in by_text.values())
            value = float(lost == 0) if comparison == "P@1" else lost / len(by_text)
            assert found[a, b, i] == pytest.approx(value)
            lost_somewhere += lost
    assert lost_somewhere > 0
    similarities = ["cosine"] if name == "model" else ["cosine", "distance", "dot"]
    assert set(values) == set(product(("P@1", "PND"), similarities))


def test_paragraphs_of_equal_text_are_one_answer_and_are_counted(model: DualEncoder) -> None:
    data = questions()
    scores = score_question_grid(model, data)
    assert "paragraphs with equal texts count as the same answer: 1 in de" in scores.notes
    # Whether a question names the one or the other changes nothing in German, and does in English.
    other = replace(data, answers=np.array([0, 3, 2, 1, 1, 3]))
    pairs = list(zip(scores.grids, score_question_grid(model, other).grids, strict=True))
    assert all((one.values[:, 0] == two.values[:, 0]).all() for one, two in pairs)
    assert any((one.values[:, 1] != two.values[:, 1]).any() for one, two in pairs)


def mute(monkeypatch: pytest.MonkeyPatch, word: str, value: float) -> None:
    """From now on models give this value throughout for texts that begin with the word."""
    encode = DualEncoder.encode

    def muted(
        self: DualEncoder, texts: Sequence[str], *, side: Side, precision: Precision, on_progress: object
    ) -> np.ndarray:
        vectors = encode(self, texts, side=side, precision=precision)
        vectors[[text.startswith(word) for text in texts]] = value
        return vectors

    monkeypatch.setattr(DualEncoder, "encode", muted)


def test_zero_vectors_are_scored_and_counted(model: DualEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert score_nli_grid(model, sentence_pairs()).facts == {}
    mute(monkeypatch, "de", 0.0)
    scores = score_nli_grid(model, sentence_pairs())
    assert scores.facts == {"zero vectors": 14.0}
    assert any("14 texts have a zero vector" in note and "premise in de: 7" in note for note in scores.notes)
    # All pairs score 0 there, and ties are errors.
    assert [cell_values(cells)[0].tolist() for cells in scores.grids] == [[1.0, 1.0]] * 4


def before_and_after(model: DualEncoder) -> tuple[TaskScores, TaskScores]:
    other = DualEncoder(tiny_encoder(seed=9, settings=model.query.settings), model.document, "before")
    return score_nli_grid(other, sentence_pairs()), score_nli_grid(model, sentence_pairs())


def test_a_result_of_before_and_after_holds_what_both_scored(model: DualEncoder) -> None:
    before, after = before_and_after(model)
    result = built([after], before, sentence_pairs(), resamples=100)
    assert (result.name, result.kind, result.role, result.main) == ("pairs", "grid", "retain", "PND")
    assert (result.queries, result.documents) == (14, 14)
    # The change is over premises, of which some have several sentence pairs.
    assert result.units == len(after.units) == len(after.samples[0].values) < len(sentence_pairs())
    # Three sentence pairs are entailed, two neutral, two contradicted: 6 + 6 comparisons; 3 + 4 of them are
    # of different premises.
    assert (result.languages, result.pairs) == (["de", "en"], 4 * (12 + 7))
    for table, now, was in zip(result.grid, after.grids, before.grids, strict=True):
        assert table.comparison == now.comparison
        assert (table.after, table.before) == (cell_values(now).tolist(), cell_values(was).tolist())
    change = result.main_change()
    assert change.after == pytest.approx(np.mean([table.after for table in result.grid[:2]]))
    assert change.before == pytest.approx(np.mean([table.before for table in result.grid[:2]]))
    assert result.notes == [*after.notes]


def test_cells_over_several_runs_have_changes_of_means_and_no_verdicts(model: DualEncoder) -> None:
    before, after = before_and_after(model)
    third = DualEncoder(tiny_encoder(seed=4, settings=model.query.settings), model.document, "again")
    runs = [after, score_nli_grid(third, sentence_pairs())]
    result, alone = (built(every, before, sentence_pairs()) for every in (runs, runs[:1]))
    assert (result.kind, result.pairs, alone.pairs) == ("grid", 76, 76)
    for number, table in enumerate(result.grid):
        means = np.mean([cell_values(scores.grids[number]) for scores in runs], axis=0)
        np.testing.assert_allclose(table.after, means, rtol=1e-6)
        assert table.before == alone.grid[number].before == cell_values(before.grids[number]).tolist()
        percent = 100 * (np.array(table.before) - means) / np.array(table.before)
        np.testing.assert_allclose(np.array(table.improvement, dtype=float), percent, rtol=1e-4, atol=1e-4)
        assert {cell for row in table.verdicts or [] for cell in row} == {"undecided"}
        assert (table.improved, table.worsened, table.not_worse, table.worsened_z) == (0, 0, 0, None)
        assert table.reasons == [Reason.CELLS_OVER_RUNS]
    assert not any(table.reasons for table in alone.grid)
    # No signs were flipped for cells.
    assert result.notes == [*after.notes]
    assert (result.worse_cells(), result.cells) == (0, 4)


def test_cells_of_one_model_are_not_worse_unless_their_margin_is_a_share_of_nothing(
    model: DualEncoder,
) -> None:
    scores = score_nli_grid(model, sentence_pairs())
    (first, *others) = scores.grids
    errors = np.array(first.errors).copy()
    errors[0, 1] = 0
    scores = replace(scores, grids=[replace(first, errors=errors), *others])
    # Four premises exclude no loss.
    result = built([scores], scores, sentence_pairs())
    assert {cell for table in result.grid for row in table.verdicts or [] for cell in row} == {"undecided"}

    def of_one(margin: Margin, *known: Reason) -> DatasetResult:
        return built([scores], scores, sentence_pairs(), margin=margin, known=[Reason.ONE_MODEL, *known])

    held, absolute = of_one(Margin()), of_one(Margin(absolute=0.01))
    assert held.main_change().reasons == [Reason.ONE_MODEL]
    assert held.main_change().verdict == "not worse"
    assert held.grid[0].verdicts == [["not worse", "undecided"], ["not worse", "not worse"]]
    assert held.grid[0].not_worse == 3
    assert [table.not_worse for table in absolute.grid] == [4] * len(absolute.grid)
    # A model that trained on the pairs cannot be worse than itself either.
    assert of_one(Margin(), Reason.TRAINED_ON).grid[0].verdicts == held.grid[0].verdicts


def test_a_grid_says_that_signs_were_flipped_more_often_than_asked(model: DualEncoder) -> None:
    before, after = before_and_after(model)
    result = built([after], before, sentence_pairs())
    told = "flipped 80 times in the cells of the grid, not measure.resamples = 50"
    assert any(told in note for note in result.notes)
    alone = built([after], None, sentence_pairs())
    assert (list(after.notes), alone.grid[0].before, alone.main_change().before) == (alone.notes, None, None)


by_cosine = partial(measure_question_grid, similarities=["cosine"])
ANSWERS = np.array([0, 0, 2, 1, 3])


def question_vectors(seed: int) -> tuple[dict[str, np.ndarray], ...]:
    """Five questions in two languages, paragraphs in two others; one paragraph comes twice under different
    numbers.
    """
    generator = np.random.default_rng(seed)

    def drawn(**sizes: int) -> dict[str, np.ndarray]:
        shapes = {language: (size, 6) for language, size in sizes.items()}
        return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    questions, paragraphs = drawn(de=5, en=5), drawn(fr=4, zh=6)
    paragraphs["zh"][5] = paragraphs["zh"][0]
    return questions, paragraphs, {"fr": ANSWERS, "zh": ANSWERS + 1 - (ANSWERS == 0)}


def test_questions_of_a_case_worked_by_hand():
    # The first question is nearest to its paragraph; the second has it in second place of three.
    questions = {"en": np.array([[1.0, 0.0], [1.0, 0.2]], dtype=np.float32)}
    paragraphs = {"de": np.array([[2.0, 0.1], [0.0, 1.0], [1.0, 3.0]], dtype=np.float32)}
    samples, cells = by_cosine(questions, paragraphs, {"de": np.array([0, 2])})
    assert [(one.measure, one.similarity, one.lower_is_better, one.values.tolist()) for one in samples] == [
        ("P@1", "cosine", False, [1.0, 0.0]),
        ("RR", "cosine", False, [1.0, 0.5]),
        ("PND", "cosine", True, [0.0, 0.5]),
    ]
    assert {(one.rows, one.columns) for one in cells} == {(("en",), ("de",))}
    assert [(one.comparison, one.lower_is_better, one.values.tolist()) for one in cells] == [
        ("P@1", False, [[[1.0, 0.0]]]),
        ("PND", True, [[[0.0, 0.5]]]),
    ]


def test_an_equal_vector_is_a_tie_and_a_tie_is_lost():
    vector = np.array([0.3, 0.7, -0.2], dtype=np.float32)
    paragraphs = {"en": np.stack([vector, vector, -vector])}
    samples, _ = by_cosine({"en": vector[None]}, paragraphs, {"en": np.array([0])})
    assert [one.values.tolist() for one in samples] == [[0.0], [0.5], [0.5]]


def test_neither_the_order_of_questions_nor_of_paragraphs_matters():
    questions, paragraphs, answers = question_vectors(4)
    order, places = np.array([3, 0, 4, 1, 2]), np.array([2, 0, 3, 1])
    samples, _ = by_cosine(questions, paragraphs, answers)
    moved = {**paragraphs, "fr": paragraphs["fr"][places]}
    told = {"fr": np.argsort(places)[answers["fr"]][order], "zh": answers["zh"][order]}
    mixed = {language: vectors[order] for language, vectors in questions.items()}
    shuffled, _ = by_cosine(mixed, moved, told)
    for one, other in zip(samples, shuffled, strict=True):
        np.testing.assert_allclose(other.values, one.values[order], atol=1e-15)
