import math

import ir_measures
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from adiabat.core.errors import ConfigError
from adiabat.stats.ranking_measures import (
    discordant_counts,
    improvement,
    largest_cutoff,
    pessimistic_run,
    pnd_shares,
    ranking_measures,
    require_relevant_only,
)


def tied_scores(seed: int, size: int, dtype: type = np.float64) -> np.ndarray:
    """Scores of which many coincide."""
    return np.round(np.random.default_rng(seed).standard_normal(size), 1).astype(dtype)


def test_discordant_counts_of_a_case_worked_by_hand():
    counts = discordant_counts(np.array([0.9, 0.5, 0.0]), np.array([0.5, 0.7, 0.1]))
    assert counts.tolist() == [0, 2, 3]


def test_ties_count_as_errors():
    assert discordant_counts(np.array([1.0]), np.array([1.0, 1.0])).tolist() == [2]


@pytest.mark.parametrize("positive_type", [np.float32, np.float64])
@pytest.mark.parametrize("negative_type", [np.float32, np.float64])
def test_discordant_counts_agree_with_plain_loops(positive_type, negative_type):
    # Halves are exact in both widths, so a tie is a tie whatever the types.
    positive, negative = (np.round(2 * tied_scores(seed, 60)) / 2 for seed in (1, 2))
    expected = [sum(1 for other in negative if not score > other) for score in positive]
    assert discordant_counts(positive.astype(positive_type), negative.astype(negative_type)).tolist() == expected


def test_discordant_counts_do_not_depend_on_order_or_on_an_increasing_map():
    positive, negative = tied_scores(3, 40), tied_scores(4, 50)
    counts = discordant_counts(positive, negative)
    assert discordant_counts(positive, negative[::-1].copy()).tolist() == counts.tolist()
    assert discordant_counts(positive[::-1].copy(), negative).tolist() == counts[::-1].tolist()
    assert discordant_counts(4 * positive, 4 * negative).tolist() == counts.tolist()


def test_one_minus_roc_auc_is_the_discrepancy_with_ties_halved():
    positive, negative = tied_scores(5, 80), tied_scores(6, 90)
    errors, pairs = discordant_counts(positive, negative).sum(), positive.size * negative.size
    ties = int((positive[:, None] == negative[None, :]).sum())
    auc = roc_auc_score([1] * 80 + [0] * 90, np.concatenate([positive, negative]))
    assert ties > 0
    assert (errors - ties / 2) / pairs == pytest.approx(1 - auc, abs=1e-12)


def test_no_negatives_make_no_errors():
    assert discordant_counts(np.array([0.1, 0.2]), np.array([])).tolist() == [0, 0]


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
    assert improvement(0.0, 0.5, lower_is_better=True) is None


def test_pessimistic_run_puts_the_less_relevant_first_on_ties():
    run = {"q": {"good": 0.5, "unjudged": 0.5, "best": 0.5, "top": 0.7, "last": -1.0}}
    ranked = pessimistic_run(run, {"q": {"good": 1, "best": 2}})
    assert ranked == {"q": {"top": 5.0, "unjudged": 4.0, "good": 3.0, "best": 2.0, "last": 1.0}}
    assert pessimistic_run(ranked, {"q": {"good": 1, "best": 2}}) == ranked


def test_pessimistic_run_refuses_nan():
    with pytest.raises(ValueError, match="query 'q7' must be numbers, got NaN"):
        pessimistic_run({"q7": {"a": math.nan}}, {})


def test_ranking_measures_of_a_case_worked_by_hand():
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    values = ranking_measures(run, {"q": {"b": 1, "c": 1}}, ["nDCG@10", "RR", "AP", "P@1", "R@100", "RR@10"])
    ideal = 1 + 1 / math.log2(3)
    expected = {
        "nDCG@10": (1 / math.log2(3) + 1 / 2) / ideal,
        "RR": 1 / 2,
        "AP": (1 / 2 + 2 / 3) / 2,
        "P@1": 0.0,
        "R@100": 1.0,
        "RR@10": 1 / 2,
    }
    assert {name: value.tolist() for name, value in values.items()} == {name: [pytest.approx(value)] for name, value in expected.items()}


@pytest.mark.parametrize("relevant", ["a", "b", "c"])
def test_a_tie_is_broken_against_the_positive_whatever_its_id(relevant):
    values = ranking_measures({"q": {"a": 1.0, "b": 1.0, "c": 1.0}}, {"q": {relevant: 1}}, ["RR", "RR@10", "P@1"])
    assert values["RR"].tolist() == values["RR@10"].tolist() == [pytest.approx(1 / 3)]
    assert values["P@1"].tolist() == [0.0]


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


def test_a_run_without_results_is_all_zero():
    assert ranking_measures({}, {"q": {"d": 1}, "r": {"d": 1}}, ["AP"])["AP"].tolist() == [0.0, 0.0]


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


@pytest.mark.parametrize(
    "name",
    [
        "nDGC@10",
        "P",
        "P@x",
        "P@0",
        "P@-1",
        "nDCG@1.5",
        "P(rel=0)@5",
        "RR(rel=1.5)",
        "nDCG(gains={1:1.5})@5",
        "RR(depth=3)",
        "nDCG@10)",
        "",
        "RR; AP",
    ],
)
def test_an_unknown_or_incomplete_measure_is_refused_by_name(name):
    with pytest.raises(ConfigError) as caught:
        ranking_measures({"q": {"d": 1.0}}, {"q": {"d": 1}}, ["RR", name])
    assert repr(name) in str(caught.value)
    assert "RR'" not in str(caught.value).replace(repr(name), "")


def test_all_unknown_measures_are_reported_at_once():
    with pytest.raises(ConfigError, match=r"2 faults: .*'Foo'.*'Bar@3'"):
        ranking_measures({}, {"q": {"d": 1}}, ["Foo", "AP", "Bar@3"])


JUDGED = {"q": {"c": 2, "e": 1, "beyond": 1}}
EVERY_WAY = ["{}", "{}@5", "{}(rel=2)", "{}(rel=2)@5", "{}(judged_only=True)", "{}(judged_only=True)@5", "{}(recall=0.5)"]
EVERY_WAY += ["{}(recall=0.5,judged_only=True)", "{}(relative=True)", "{}(gains={{0:1,1:2,2:3}})@5", "{}(gains={{0:0,1:5}})@5"]


def computable() -> list[str]:
    """Whatever ir-measures computes here, in several ways."""
    names = [way.format(name) for name in sorted(ir_measures.measures.registry) for way in EVERY_WAY]
    return [name for name in names if is_known(name)]


def is_known(name: str) -> bool:
    try:
        ranking_measures({}, {}, [name])
    except ConfigError:
        return False
    return True


def test_just_those_measures_are_refused_that_judgements_of_other_documents_change():
    """Where a document is judged not relevant that was not judged before, `P(judged_only=True)@5` and its like need it to be early."""
    run = {"q": {name: -float(place) for place, name in enumerate("abcdefghij")}}
    others = [{}, {"a": 0, "d": 0, "j": 0}, {"a": 0, "b": 0, "d": 0, "f": 0}, {"a": -1, "b": -2}]
    refused = set()
    for name in computable():
        found = {float(ranking_measures(run, {"q": JUDGED["q"] | other}, [name])[name][0]) for other in others}
        try:
            require_relevant_only([name])
        except ConfigError:
            refused.add(name)
            continue
        assert len(found) == 1, name
    assert {"Bpref", "infAP", "Judged", "Judged@5", "Bpref(rel=2)", "P(judged_only=True)@5", "nDCG(gains={0:1,1:2,2:3})@5"} <= refused
    assert refused.isdisjoint(["nDCG@5", "RR", "AP", "P@5", "R@5", "Rprec", "SetP", "NumRet", "nDCG(gains={0:0,1:5})@5", "RR(rel=2)"])


def test_all_measures_that_cannot_be_had_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        require_relevant_only(["nDCG@10", "Bpref", "Foo", "AP(judged_only=True)"])
    advice = "take nDCG@10, or compare-runs on the runs"
    unknown, *others = str(caught.value).removeprefix("3 faults: ").split("; measure must depend")
    assert unknown.startswith("measure must be a complete name that ir-measures can compute, got 'Foo'; ")
    assert others == [f" on relevant documents alone, got {name!r}; {advice}" for name in ("Bpref", "AP(judged_only=True)")]


def test_the_largest_cutoff_is_that_of_the_measures_which_have_one():
    assert largest_cutoff(["nDCG@10", "RR", "R@1000"]) == 1000
    assert largest_cutoff(["RR", "AP"]) == 0
    assert largest_cutoff([]) == 0
