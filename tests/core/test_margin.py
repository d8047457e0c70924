"""The margin of non-inferiority: the measures that it may be a difference of."""

import pytest
from ir_measures import measures

from adiabat.core.errors import ConfigError
from adiabat.core.margin import Margin, require_margin


@pytest.mark.parametrize("given", ["0.5 percent", "0.01 nDGC", "0.01e", "0.01 PND foo", "0.01 @10", 10**400])
def test_a_unit_that_is_no_measure_is_refused(given: float | str) -> None:
    with pytest.raises(ValueError, match="must be a share"):
        Margin.parse(given)


@pytest.mark.parametrize(
    "unit",
    [
        "PND",
        "pnd pooled",
        "Spearman",
        "AP",
        "average precision",
        "V-measure",
        "balanced accuracy",
        "F1",
        "P(rel=2)@5",
        "nDCG@10",
    ],
)
def test_measures_of_tasks_are_units(unit: str) -> None:
    assert Margin.parse(f"0.01 {unit}") == Margin(0.01, unit)


def test_every_measure_of_ir_measures_is_a_unit() -> None:
    assert {Margin.parse(f"0.01 {name}").unit for name in measures.registry if name.isascii()} == set(
        filter(str.isascii, measures.registry)
    )


def test_the_discrepancy_against_one_negative_has_the_margin_of_the_discrepancy() -> None:
    assert Margin(0.02, "PND").of("PND, negative 1") == Margin(0.02, "PND")


@pytest.mark.parametrize(
    ("unit", "measure"),
    [
        ("MRR", "RR@10"),
        ("RR@10", "MRR@10"),
        ("R", "Recall@100"),
        ("recall@100", "R@100"),
        ("MAP", "AP"),
        ("Precision@1", "P@1"),
        ("nDCG", "ndcg_at_10"),
        ("Spearman", "cosine_spearman"),
    ],
)
def test_a_measure_by_another_name_is_the_same_measure(unit: str, measure: str) -> None:
    assert Margin(0.01, unit).of(measure) == Margin(0.01, unit)
    assert Margin(0.01, unit).of("Rprec") == Margin()


@pytest.mark.parametrize("unit", ["P", "RR@1", "average precision", "PND retrieval"])
def test_a_margin_of_a_measure_that_is_not_measured_is_refused(unit: str) -> None:
    with pytest.raises(
        ConfigError, match=f"a difference of nDCG@10, RR@10, PND, which are measured, got 0.01 {unit};"
    ):
        require_margin(f"0.01 {unit}", ["nDCG@10", "RR@10", "PND"])
