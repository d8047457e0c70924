"""All figures of a task against pytrec_eval on the run written out, and against scikit-learn, with ties and
without.
"""

from dataclasses import replace
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from sklearn.metrics import roc_auc_score

from adiabat.config.shared import MeasureSection
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.systems import System
from adiabat.stats.ranking_measures import pessimistic_run
from adiabat.stats.samples import TaskScores
from adiabat.store.addressing import AddressedSet
from tests.evaluation.given_ranker import asked
from tests.evaluation.given_vectors import give, imported_store
from tests.evaluation.scored import sample_of
from tests.tiny import tiny_dual

TREC = {"nDCG@10": "ndcg_cut_10", "nDCG": "ndcg", "AP": "map", "AP@30": "map_cut_30"}
TREC |= {"RR": "recip_rank", "P@5": "P_5", "R@30": "recall_30"}
JUDGED = ("Judged@10", "Judged@3", "Success@5", "RR@10", "Recall@100")
Case = tuple[TaskScores, AddressedSet, np.ndarray, bool]
DOCUMENTS, QUERIES, WIDTH = 60, 25, 8


def vectors(seed: int, count: int, *, tied: bool) -> np.ndarray:
    """Of unit length; where they may tie, most of them come several times."""
    generator = np.random.default_rng(seed)
    drawn = generator.standard_normal((count // 4 if tied else count, WIDTH)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn[generator.integers(0, len(drawn), count)] if tied else drawn


def judged_data(seed: int) -> AddressedSet:
    generator = np.random.default_rng(seed)

    def drawn(most: int) -> list[int]:
        return generator.permutation(DOCUMENTS)[:most].tolist()

    positives = [drawn(generator.integers(1, 9)) for _ in range(QUERIES)]
    grades = [generator.integers(1, 4, len(one)).tolist() for one in positives]
    irrelevant = [[row for row in drawn(12) if row not in near] for near in positives]
    return replace(asked(positives, grades=grades, negatives=irrelevant), is_judged=True)


@pytest.fixture(params=[False, True], ids=["no ties", "ties"])
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Scores by a model of given vectors, the data, the cosine of every query and document, and whether some
    are equal.
    """
    tied = bool(request.param)
    documents, queries, data = (
        vectors(1, DOCUMENTS, tied=tied),
        vectors(2, QUERIES, tied=False),
        judged_data(3),
    )
    give(monkeypatch, dict(zip(data.queries, queries.tolist(), strict=True)))
    settings = MeasureSection(report=(*TREC, *JUDGED), depth=DOCUMENTS)
    scores = score_retrieval(
        System(tiny_dual(), imported_store(tmp_path, documents)), data, settings=settings
    )
    # Element by element, so that equal documents score equal: a product of matrices may add in another order.
    table = (queries.astype(np.float64)[:, None] * documents.astype(np.float64)).sum(axis=2)
    return scores, data, table / np.linalg.norm(documents.astype(np.float64), axis=1), tied


def test_every_rank_measure_of_every_query_is_that_of_trec_eval(case: Case) -> None:
    scores, data, table, tied = case
    run, qrels = {}, {}
    for query, query_id in enumerate(data.query_ids):
        run[query_id] = {f"d{row}": float(score) for row, score in enumerate(table[query])}
        grades = zip(data.positives[query], data.grades[query], strict=True)
        qrels[query_id] = {f"d{row}": int(grade) for row, grade in grades}
    assert (len(np.unique(table)) < table.size) == tied
    judge = pytrec_eval.RelevanceEvaluator(qrels, set(TREC.values()))
    judged = judge.evaluate(pessimistic_run(run, qrels) if tied else run)
    for name, theirs in TREC.items():
        ours = sample_of(scores, name).values
        assert ours.tolist() == [judged[query_id][theirs] for query_id in data.query_ids], name


def test_measures_of_all_judged_documents_are_those_of_ir_measures(case: Case) -> None:
    """Of documents that tie, unjudged ones come first, relevant ones last."""
    scores, data, table, _ = case
    run, qrels = {}, {}
    for query, query_id in enumerate(data.query_ids):
        grades = dict(zip(data.positives[query].tolist(), data.grades[query].tolist(), strict=True))
        judged = dict.fromkeys(data.negatives[query].tolist(), 0) | grades
        order = sorted(range(DOCUMENTS), key=lambda row: (-table[query][row], judged.get(row, -1)))
        run[query_id] = {f"d{row}": float(DOCUMENTS - place) for place, row in enumerate(order)}
        qrels[query_id] = {f"d{row}": int(grade) for row, grade in judged.items()}
    for name in JUDGED:
        metrics = ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)
        theirs = {metric.query_id: metric.value for metric in metrics}
        ours = sample_of(scores, name).values
        assert ours == pytest.approx([theirs[query_id] for query_id in data.query_ids], abs=1e-12), name
    assert len(set(sample_of(scores, "Judged@10").values.tolist())) > 3


def test_pnd_is_one_minus_the_area_under_the_curve_where_half_of_the_ties_are_added(case: Case) -> None:
    """The area counts a tie as half in order: ``1 - AUC = (errors - ties / 2) / (p n)``, so ``PND = 1 - AUC +
    ties / (2 p n)``.
    """
    scores, data, table, tied = case
    ours, all_ties = sample_of(scores, "PND").values, 0
    for query, row in enumerate(table.astype(np.float32)):
        relevant = np.isin(np.arange(DOCUMENTS), data.positives[query])
        ties = int((row[relevant][:, None] == row[~relevant][None]).sum())
        halves = ties / (2 * relevant.sum() * (~relevant).sum())
        assert ours[query] == pytest.approx(1 - roc_auc_score(relevant, row) + halves, abs=1e-12)
        all_ties += ties
    assert (all_ties > 0) == tied
