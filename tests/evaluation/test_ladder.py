"""PND by the number of the listed negative: against loops, with ties and repetitions, in the result and on its page."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from adiabat.config.shared import EvaluateSettings, MeasureSection
from adiabat.core.progress import SILENT
from adiabat.data.records import Example, ExampleSet
from adiabat.data.trained_texts import TrainedTexts
from adiabat.evaluation import ranking
from adiabat.evaluation.evaluate import Dataset, evaluate_datasets
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.systems import System
from adiabat.models.towers import DualEncoder
from adiabat.report import pages
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.vector_store import Store
from tests.stats.brute_force import all_scores
from tests.tiny import tiny_dual, tiny_encoder

TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(12)]
TEXTS[7] = TEXTS[3]
# The positive of the third query is one text with document 7: a tie, which is an error. The second query lists a document twice.
LADDERS = [(0, (1, 2, 3)), (5, (4, 11, 11)), (3, (7, 6, 8)), (9, (10, 0, 7))]


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(seed=1)


@pytest.fixture(scope="module")
def store(model: DualEncoder, make_store: Callable[..., Store]) -> Store:
    return make_store(model, TEXTS)


def examples(store: Store, ladders: Sequence[tuple[int, tuple[int, ...]]] = LADDERS, **options: bool) -> AddressedSet:
    rows = [
        Example(f"q{number}", f"what is {'abcd'[number]}", (f"d{near}",), tuple(f"d{row}" for row in far))
        for number, (near, far) in enumerate(ladders)
    ]
    return address(ExampleSet("papers", tuple(rows), **options), store, merge_equal=True)


def test_every_number_is_compared_as_loops_compare_it(model: DualEncoder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = examples(store)
    table = all_scores(model, store, data.queries)
    expected = [[float(table[row][far] >= table[row][near]) for far in negatives] for row, (near, negatives) in enumerate(LADDERS)]
    monkeypatch.setattr(ranking, "QUERIES_PER_BLOCK", 3)
    scores = score_retrieval(System(model, store), data, settings=MeasureSection())
    assert [sample.measure for sample in scores.ladder] == ["PND, negative 1", "PND, negative 2", "PND, negative 3"]
    found = np.stack([sample.values for sample in scores.ladder], axis=1)
    assert found.tolist() == expected
    assert found[2, 0] == 1
    assert 0 < found.sum() < found.size


def test_there_is_no_ladder_where_lists_differ_in_length_or_nothing_is_listed(model: DualEncoder, store: Store) -> None:
    assert examples(store, [*LADDERS[:3], (9, (10, 0))]).negative_columns is None
    assert examples(store, [(near, far[:1]) for near, far in LADDERS]).negative_columns is None
    assert examples(store, is_judged=True).negative_columns is None
    assert not score_retrieval(System(model, store), examples(store), settings=MeasureSection(negatives="store")).ladder


def test_the_curve_stands_in_the_result_and_on_its_page_without_verdicts_where_the_model_was_trained_on_it(
    model: DualEncoder, store: Store
) -> None:
    before = DualEncoder(tiny_encoder(seed=2), model.document, "before")
    data = Dataset(store, examples(store), "target")
    settings = EvaluateSettings.model_validate({"measure": {"resamples": 100}})
    about = {"settings": settings, "title": "A title", "command": "adiabat evaluate", "watch": SILENT}
    result = evaluate_datasets(model, before, [data], **about)
    (found,) = result.datasets
    table = all_scores(before, store, data.examples.queries)
    shares = [np.mean([table[row][far[place]] >= table[row][near] for row, (near, far) in enumerate(LADDERS)]) for place in range(3)]
    assert [change.before for change in found.ladder] == pytest.approx(shares)
    page = pages.files(result)["report.html"]()
    assert "Errors by listed negative: papers" in page
    assert "PND, negative 3" in page
    assert "Errors by listed negative" not in pages.files(replace(result, datasets=[replace(found, ladder=[])]))["report.html"]()
    trained = TrainedTexts.of(data.examples.queries)
    seen = evaluate_datasets(model, before, [data], trained=[trained, None], **about).datasets[0]
    assert {change.verdict for change in (*seen.changes, *seen.ladder)} == {None}
