"""Measures from places against rankings written out in full, which trec_eval and ir-measures judge document by document."""

import ir_measures
import numpy as np
import pytest

from adiabat.core.errors import ConfigError
from adiabat.core.ragged import Ragged
from adiabat.stats import ranking_measures as places_module
from adiabat.stats.ranking_measures import _untied_measures, measures_of_ranks

EVERY = [
    *("nDCG@10", "nDCG", "RR", "RR@10", "AP", "AP@5", "P@1", "P@5", "R@5", "R@100"),
    *("Rprec", "Success@3", "SetP", "NumRet", "RR(rel=2)", "IPrec@0.5"),
]


def drawn(seed: int, queries: int = 60, documents: int = 25) -> tuple[list[list[int]], list[list[int]], np.ndarray]:
    """Places, grades and lengths of rankings; some documents lie beyond, and some rankings are empty."""
    generator = np.random.default_rng(seed)
    places = [generator.permutation(documents)[: generator.integers(1, 5)].tolist() for _ in range(queries)]
    grades = [generator.integers(1, 4, len(one)).tolist() for one in places]
    return places, grades, generator.integers(0, documents, queries)


def test_places_of_a_case_worked_by_hand() -> None:
    values = measures_of_ranks(
        Ragged.of([[1], [0, 3], [7]]), Ragged.of([[1], [1, 1], [1]]), np.array([5, 5, 5]), ["RR", "AP", "P@1", "R@5"]
    )
    assert {name: one.tolist() for name, one in values.items()} == {
        "RR": [0.5, 1.0, 0.0],
        "AP": [0.5, pytest.approx((1 + 2 / 4) / 2), 0.0],
        "P@1": [0.0, 1.0, 0.0],
        "R@5": [1.0, 1.0, 0.0],
    }


@pytest.mark.parametrize("seed", range(3))
def test_measures_are_those_of_the_rankings_written_out(seed: int) -> None:
    places, grades, found = drawn(seed)
    values = measures_of_ranks(Ragged.of(places), Ragged.of(grades), found, EVERY)
    run, qrels = {}, {}
    for query, (where, how, length) in enumerate(zip(places, grades, found.tolist(), strict=True)):
        # Document names that sort neither by place nor by grade.
        run[f"q{query}"] = {f"d{(7 * place) % 25}": 100.0 - place for place in range(length)}
        qrels[f"q{query}"] = {f"d{(7 * place) % 25}": grade for place, grade in zip(where, how, strict=True)}
    plain = _untied_measures(run, qrels, EVERY)
    for name in EVERY:
        np.testing.assert_array_equal(values[name], plain[name], err_msg=name)


def test_values_are_those_of_ir_measures_itself() -> None:
    places, grades, found = drawn(7)
    found += 1
    values = measures_of_ranks(Ragged.of(places), Ragged.of(grades), found, ["nDCG@10", "RR", "AP", "P@5"])
    run = [ir_measures.ScoredDoc(str(query), str(place), -place) for query, length in enumerate(found) for place in range(length)]
    qrels = [
        ir_measures.Qrel(str(query), str(place), grade)
        for query, one in enumerate(zip(places, grades, strict=True))
        for place, grade in zip(*one, strict=True)
    ]
    measures = [ir_measures.parse_measure(name) for name in values]
    for metric in ir_measures.iter_calc(measures, qrels, run):
        assert values[str(metric.measure)][int(metric.query_id)] == metric.value


def test_the_order_in_which_documents_are_listed_does_not_matter() -> None:
    places, grades, found = drawn(3)
    backwards = [Ragged.of([one[::-1] for one in lists]) for lists in (places, grades)]
    forwards = measures_of_ranks(Ragged.of(places), Ragged.of(grades), found, EVERY)
    for name, values in measures_of_ranks(*backwards, found, EVERY).items():
        assert np.array_equal(values, forwards[name])


def test_each_pattern_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []

    def counting(run: dict[str, dict[str, float]], *more: object) -> dict[str, np.ndarray]:
        judged.append(len(run))
        return _untied_measures(run, *more)

    monkeypatch.setattr(places_module, "_untied_measures", counting)
    places = Ragged.of([[query % 3] for query in range(1000)])
    values = measures_of_ranks(places, Ragged.of([[1]] * 1000), np.full(1000, 2), ["RR"])
    assert judged == [3]
    assert values["RR"].tolist() == ([1.0, 0.5, 0.0] * 334)[:1000]


def test_an_empty_ranking_is_worth_nothing() -> None:
    assert measures_of_ranks(Ragged.of([[0]]), Ragged.of([[1]]), np.array([0]), ["RR", "nDCG@10"]) == {"RR": [0.0], "nDCG@10": [0.0]}


def test_lists_of_other_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="must be of the same queries, got 1, 2 and 1"):
        measures_of_ranks(Ragged.of([[0]]), Ragged.of([[1], [1]]), np.array([1]), ["RR"])


@pytest.mark.parametrize("name", ["Bpref", "infAP", "Judged@5", "nDCG(judged_only=True)@10", "nDCG(gains={0:1,1:2})@10"])
def test_a_measure_that_needs_documents_judged_not_relevant_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        measures_of_ranks(Ragged.of([[0]]), Ragged.of([[1]]), np.array([1]), ["RR", name])
    assert str(caught.value) == (
        f"measure must depend on relevant documents alone, got {name!r}; take nDCG@10, or compare-runs on the runs"
    )


def test_an_unknown_measure_is_named() -> None:
    with pytest.raises(ConfigError, match="'nDGC@10'"):
        measures_of_ranks(Ragged.of([[0]]), Ragged.of([[1]]), np.array([1]), ["RR", "nDGC@10"])
