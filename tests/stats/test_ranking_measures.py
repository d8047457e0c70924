"""Ranking measures and the positive-negative discrepancy, against plain loops, scikit-learn and
ir-measures.
"""

import math
import re
from itertools import product

import ir_measures
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from adiabat.core.errors import ConfigError
from adiabat.core.ragged import Ragged
from adiabat.stats import ranking_measures as places_module
from adiabat.stats.ranking_measures import (
    PairCounts,
    _untied_measures,
    discordant_counts,
    improvement,
    largest_cutoff,
    measures_of_ranks,
    need_judged_ranks,
    pessimistic_run,
    pnd_samples,
    pnd_shares,
    ranking_measures,
    require_report,
    same_in_any_order,
)
from adiabat.stats.samples import ranking_sample
from adiabat.stats.statistics import value_of


def tied_scores(seed: int, size: int, dtype: type = np.float64) -> np.ndarray:
    """Scores of which many coincide."""
    return np.round(np.random.default_rng(seed).standard_normal(size), 1).astype(dtype)


def test_discordant_counts_of_a_case_worked_by_hand():
    counts = discordant_counts(np.array([0.9, 0.5, 0.0]), np.array([0.5, 0.7, 0.1]))
    assert counts.tolist() == [0, 2, 3]


@pytest.mark.parametrize("positive_type", [np.float32, np.float64])
@pytest.mark.parametrize("negative_type", [np.float32, np.float64])
def test_discordant_counts_agree_with_plain_loops(positive_type, negative_type):
    # Halves are exact in both widths, so a tie is a tie whatever the types.
    positive, negative = (np.round(2 * tied_scores(seed, 60)) / 2 for seed in (1, 2))
    expected = [sum(1 for other in negative if not score > other) for score in positive]
    assert (
        discordant_counts(positive.astype(positive_type), negative.astype(negative_type)).tolist() == expected
    )


def test_one_minus_roc_auc_is_the_discrepancy_with_ties_halved():
    positive, negative = tied_scores(5, 80), tied_scores(6, 90)
    errors, pairs = discordant_counts(positive, negative).sum(), positive.size * negative.size
    ties = int((positive[:, None] == negative[None, :]).sum())
    auc = roc_auc_score([1] * 80 + [0] * 90, np.concatenate([positive, negative]))
    assert ties > 0
    assert (errors - ties / 2) / pairs == pytest.approx(1 - auc, abs=1e-12)


@pytest.mark.parametrize("side", ["positive", "negative"])
def test_nan_scores_are_refused(side):
    scores = {"positive": np.array([0.1, 0.2]), "negative": np.array([0.3, 0.4])}
    scores[side][1] = np.nan
    with pytest.raises(ValueError, match=f"{side} scores must be numbers, got 1 NaN of 2"):
        discordant_counts(**scores)


def test_shares_of_a_case_worked_by_hand():
    assert pnd_shares(np.array([1, 0, 6]), np.array([2, 0, 8])).tolist() == [0.5, 0.0, 0.75]


@pytest.mark.parametrize(("errors", "pairs"), [([1, 3], [1, 2]), ([0, -1], [1, 2])])
def test_impossible_counts_are_refused_with_the_query_named(errors, pairs):
    with pytest.raises(ValueError, match=r"got -?\d of 2 at query 1"):
        pnd_shares(np.array(errors), np.array(pairs))


def test_improvement_is_positive_where_the_measure_got_better():
    assert improvement(0.4, 0.3, lower_is_better=True) == pytest.approx(25.0)
    assert improvement(0.4, 0.5, lower_is_better=False) == pytest.approx(25.0)
    assert improvement(0.4, 0.5, lower_is_better=True) == pytest.approx(-25.0)
    assert improvement(0.2, 0.5, lower_is_better=True) == pytest.approx(-150)
    for before, lower in product((0.0, -0.2), (True, False)):
        assert improvement(before, 0.5, lower_is_better=lower) is None


def test_pessimistic_run_puts_the_less_relevant_first_on_ties():
    run = {"q": {"good": 0.5, "unjudged": 0.5, "best": 0.5, "top": 0.7, "last": -1.0}}
    ranked = pessimistic_run(run, {"q": {"good": 1, "best": 2}})
    assert ranked == {"q": {"top": 5.0, "unjudged": 4.0, "good": 3.0, "best": 2.0, "last": 1.0}}
    assert pessimistic_run(ranked, {"q": {"good": 1, "best": 2}}) == ranked


def test_ranking_measures_of_a_case_worked_by_hand():
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    values = ranking_measures(run, {"q": {"b": 1, "c": 1}}, ["nDCG@10", "RR", "AP", "P@1", "R@100", "RR@10"])
    gain = (1 / math.log2(3) + 1 / 2) / (1 + 1 / math.log2(3))
    expected = {
        "nDCG@10": gain,
        "RR": 1 / 2,
        "AP": (1 / 2 + 2 / 3) / 2,
        "P@1": 0.0,
        "R@100": 1.0,
        "RR@10": 1 / 2,
    }
    assert {name: value.item() for name, value in values.items()} == pytest.approx(expected)


@pytest.mark.parametrize(("positive", "expected"), [("a", 1.0), ("b", 1 / 2)])
def test_scores_that_differ_only_in_64_bits_stay_apart(positive, expected):
    values = ranking_measures({"q": {"a": 0.5 + 1e-12, "b": 0.5}}, {"q": {positive: 1}}, ["RR"])
    assert values["RR"].tolist() == [expected]


def test_values_stand_in_the_order_of_the_qrels_and_missing_queries_count_zero():
    run = {"z": {"d": 1.0}, "unjudged": {"d": 1.0}, "empty": {}, "a": {"x": 2.0, "d": 1.0}}
    qrels = {query_id: {"d": 1} for query_id in ("z", "absent", "empty", "a")}
    values = ranking_measures(run, qrels, ["RR", "nDCG@10"])
    assert values["RR"].tolist() == [1.0, 0.0, 0.0, 0.5]
    assert values["nDCG@10"].tolist() == [1.0, 0.0, 0.0, pytest.approx(1 / math.log2(3))]


def test_ranking_measures_agree_with_scikit_learn_where_nothing_is_tied():
    generator = np.random.default_rng(9)
    scores = generator.permuted(np.tile(np.arange(30.0), (20, 1)), axis=1)
    grades = generator.integers(0, 3, size=(20, 30))
    run = {f"q{i}": {f"d{j}": float(score) for j, score in enumerate(row)} for i, row in enumerate(scores)}
    qrels = {f"q{i}": {f"d{j}": int(grade) for j, grade in enumerate(row)} for i, row in enumerate(grades)}
    values = ranking_measures(run, qrels, ["AP", "nDCG@10"])
    precision = [average_precision_score(row > 0, score) for row, score in zip(grades, scores, strict=True)]
    gain = [ndcg_score(row[None], score[None], k=10) for row, score in zip(grades, scores, strict=True)]
    np.testing.assert_allclose(values["AP"], precision, atol=1e-12)
    np.testing.assert_allclose(values["nDCG@10"], gain, atol=1e-12)


UNKNOWN = ["nDGC@10", "P", "P@x", "P@0", "P@-1", "nDCG@1.5", "nDCG@10)", "", "RR; AP"]
ODD = ["P(rel=0)@5", "RR(rel=1.5)", "nDCG(gains={1:1.5})@5", "RR(depth=3)"]


@pytest.mark.parametrize("name", [*UNKNOWN, *ODD])
def test_an_unknown_or_incomplete_measure_is_refused_by_name(name):
    with pytest.raises(ConfigError) as caught:
        ranking_measures({"q": {"d": 1.0}}, {"q": {"d": 1}}, ["RR", name])
    assert repr(name) in str(caught.value)
    assert "RR'" not in str(caught.value).replace(repr(name), "")


JUDGED = {"q": {"c": 2, "e": 1, "beyond": 1}}
EVERY_WAY = ["", "@5", "(rel=2)", "(rel=2)@5", "(judged_only=True)", "(judged_only=True)@5", "(recall=0.5)"]
EVERY_WAY += [
    "(recall=0.5,judged_only=True)",
    "(relative=True)",
    "(gains={0:1,1:2,2:3})@5",
    "(gains={0:0,1:5})@5",
]


def computable() -> list[str]:
    """Whatever ir-measures computes here, in several ways."""
    names = [name + way for name in sorted(ir_measures.measures.registry) for way in EVERY_WAY]
    return [name for name in names if is_known(name)]


def is_known(name: str) -> bool:
    try:
        ranking_measures({}, {}, [name])
    except ConfigError:
        return False
    return True


def test_just_those_measures_are_refused_that_grades_below_1_change():
    """-1 is no judgement to `P(judged_only=True)@5` and its like.

    `Judged` needs the ranks of all that were judged.
    """
    run = {"q": {name: -float(place) for place, name in enumerate("abcdefghij")}}
    refused = set()
    for name in computable():
        others = [{"a": 0, "b": 0}, {"a": -1, "b": -2}]
        try:
            require_report([name])
        except ConfigError:
            refused.add(name)
            continue
        if not need_judged_ranks([name]):
            others += [{}, {"a": 0, "d": 0, "j": 0}, {"a": 0, "b": 0, "d": 0, "f": 0}]
        judged = [{"q": JUDGED["q"] | other} for other in others]
        assert len({float(ranking_measures(run, qrels, [name])[name][0]) for qrels in judged}) == 1, name
    told_apart = {"Bpref", "infAP", "Bpref(rel=2)", "P(judged_only=True)@5", "nDCG(gains={0:1,1:2,2:3})@5"}
    assert told_apart <= refused
    plain = ["nDCG@5", "RR", "AP", "P@5", "R@5", "Rprec", "SetP", "NumRet", "Judged", "Judged@5"]
    assert refused.isdisjoint([*plain, "nDCG(gains={0:0,1:5})@5", "RR(rel=2)"])


def test_measures_that_need_the_ranks_of_all_judged_documents():
    assert need_judged_ranks(["nDCG@10", "Judged@5"])
    assert not need_judged_ranks(["nDCG@10", "Recall@100", "RR@10", "P@5", "Success@5", "AP"])


def test_measures_that_no_order_of_a_short_list_can_change():
    names = ["nDCG@10", "Recall@100", "R@4", "R@5", "P@5", "Success@9", "RR@10", "Judged@2", "AP"]
    assert same_in_any_order(names, 5) == ["Recall@100", "R@5", "P@5", "Success@9", "Judged@2"]
    falling = [5.0, 4.0, 3.0, 2.0, 1.0]
    orders = [dict(zip("abcde", order, strict=True)) for order in (falling, falling[::-1])]
    one, other = (ranking_measures({"q": order}, JUDGED, names) for order in orders)
    same = [name for name in names if one[name] == other[name]]
    assert same == ["Recall@100", "R@5", "P@5", "Success@9"]


def test_default_measures_of_queries_without_relevant_documents_equal_ir_measures():
    """Random judgements of grades -1 to 3, runs with ties, queries without a relevant document and without a
    run.
    """
    random = np.random.default_rng(7)

    def drawn(documents: int, low: int, high: int) -> dict[str, int]:
        return {f"d{d}": int(random.integers(low, high)) for d in random.permutation(40)[:documents]}

    qrels = {f"q{q}": drawn(15, -1, 4) for q in range(30)}
    qrels |= {f"q{q}": {f"d{d}": 0 for d in range(5)} for q in range(30, 34)}
    run = {f"q{q}": {d: float(score) for d, score in drawn(30, 0, 12).items()} for q in range(33)}
    names = ["nDCG@10", "Recall@100", "RR@10", "P@5", "Success@5", "AP", "Judged@10"]
    found = ranking_measures(run, qrels, names)

    untied = {}
    for query, scores in run.items():
        judged = qrels[query]

        def order(document: str, scores=scores, judged=judged) -> tuple[float, int, bool, str]:
            return (-scores[document], max(judged.get(document, 0), 0), document in judged, document)

        untied[query] = {document: -float(place) for place, document in enumerate(sorted(scores, key=order))}
    for name in names:
        metrics = ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, untied)
        theirs = {metric.query_id: metric.value for metric in metrics}
        assert found[name].tolist() == [theirs[query] if query in run else 0.0 for query in qrels], name


def test_all_measures_that_cannot_be_had_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        require_report(["nDCG@10", "Bpref", "Foo", "AP(judged_only=True)"])
    advice = "take nDCG@10, or compare on the runs"
    unknown, *others = str(caught.value).removeprefix("3 faults: ").split("; measure.report must not")
    assert unknown.startswith(
        "measure.report must hold complete names that ir-measures can compute, got 'Foo'; "
    )
    refused = ("Bpref", "AP(judged_only=True)")
    assert others == [f" tell grades below 1 apart, got {name!r}; {advice}" for name in refused]


def test_the_largest_cutoff_is_that_of_the_measures_which_have_one():
    assert largest_cutoff(["nDCG@10", "RR", "R@1000"]) == 1000
    assert largest_cutoff(["RR", "AP"]) == 0
    assert largest_cutoff([]) == 0


def counts(errors: list[int], pairs: list[int]) -> PairCounts:
    return PairCounts(np.array(errors), np.array(pairs))


def test_both_forms_of_a_case_worked_by_hand() -> None:
    mean, pooled = pnd_samples(counts([1, 0, 6], [2, 0, 8]), similarity="cosine")
    assert value_of(mean).tolist() == [(1 / 2 + 6 / 8) / 2]
    assert value_of(pooled).tolist() == [7 / 10]
    assert [one.key for one in (mean, pooled)] == [("PND", "cosine"), ("PND pooled", "cosine")]
    assert (mean.lower_is_better, pooled.lower_is_better) == (True, True)
    assert (mean.proportion, pooled.proportion) == (False, True)


EVERY = [
    *("nDCG@10", "nDCG", "RR", "RR@10", "AP", "AP@5", "P@1", "P@5", "R@5", "R@100"),
    *("Rprec", "Success@3", "SetP", "NumRet", "RR(rel=2)", "IPrec@0.5"),
]


def drawn_ranks(seed: int) -> tuple[list[list[int]], list[list[int]], np.ndarray]:
    """Places, grades and lengths of 60 rankings; some documents lie beyond, and some rankings are empty."""
    generator = np.random.default_rng(seed)
    places = [generator.permutation(25)[: generator.integers(1, 5)].tolist() for _ in range(60)]
    grades = [generator.integers(1, 4, len(one)).tolist() for one in places]
    return places, grades, generator.integers(0, 25, 60)


def test_places_of_a_case_worked_by_hand() -> None:
    places, grades = Ragged.of([[1], [0, 3], [7]]), Ragged.of([[1], [1, 1], [1]])
    values = measures_of_ranks(places, grades, np.array([5, 5, 5]), ["RR", "AP", "P@1", "R@5"])
    precision = [0.5, pytest.approx((1 + 2 / 4) / 2), 0.0]
    expected = {"RR": [0.5, 1.0, 0.0], "AP": precision, "P@1": [0.0, 1.0, 0.0], "R@5": [1.0, 1.0, 0.0]}
    assert {name: one.tolist() for name, one in values.items()} == expected


@pytest.mark.parametrize("seed", range(3))
def test_measures_are_those_of_the_rankings_written_out(seed: int) -> None:
    places, grades, found = drawn_ranks(seed)
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
    places, grades, found = drawn_ranks(7)
    found += 1
    values = measures_of_ranks(Ragged.of(places), Ragged.of(grades), found, ["nDCG@10", "RR", "AP", "P@5"])
    run = {str(query): {str(place): -place for place in range(length)} for query, length in enumerate(found)}
    qrels = {
        str(query): dict(zip(map(str, where), how, strict=True))
        for query, (where, how) in enumerate(zip(places, grades, strict=True))
    }
    measures = [ir_measures.parse_measure(name) for name in values]
    for metric in ir_measures.iter_calc(measures, qrels, run):
        assert values[str(metric.measure)][int(metric.query_id)] == metric.value


def test_the_order_in_which_documents_are_listed_does_not_matter() -> None:
    places, grades, found = drawn_ranks(3)
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


def test_lists_of_other_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="must be of the same queries, got 1, 2 and 1"):
        measures_of_ranks(Ragged.of([[0]]), Ragged.of([[1], [1]]), np.array([1]), ["RR"])


@pytest.mark.parametrize("name", ["Bpref", "infAP", "nDCG(judged_only=True)@10", "nDCG(gains={0:1,1:2})@10"])
def test_a_measure_that_needs_documents_judged_not_relevant_is_refused(name: str) -> None:
    told = f"measure.report must not tell grades below 1 apart, got {name!r}; take nDCG@10"
    with pytest.raises(ConfigError, match=f"^{re.escape(told)}"):
        measures_of_ranks(Ragged.of([[0]]), Ragged.of([[1]]), np.array([1]), ["RR", name])


@pytest.mark.parametrize("measure", ["PND", "PND pooled", "PND, negative 2", "P@1", "nDCG@10", "NumRelRet@5"])
def test_the_name_of_a_ranking_measure_says_its_direction_and_bounds(measure):
    made = ranking_sample(measure, np.zeros(3), "cosine")
    assert (made.measure, made.similarity) == (measure, "cosine")
    bounds = None if measure == "NumRelRet@5" else (0.0, 1.0)
    assert (made.lower_is_better, made.bounds) == (measure.startswith("PND"), bounds)
