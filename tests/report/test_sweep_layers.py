"""Tensors that a sweep changed most."""

from dataclasses import replace

import pytest

from adiabat.report.sweep_analysis import block_prefix, changed, most_changed
from adiabat.report.sweep_cases import overview_of
from adiabat.results.evaluation_result import LayerChange
from tests.report.sample_sweeps import RATE, full_sweep, make_failed, make_layers, make_run, make_sweep, simple_sweep


def top_of(*layers: LayerChange, runs: int = 1) -> list[list[tuple[str, float]]]:
    made = [make_run({RATE: 1e-8}, layers=list(layers), seed=seed) for seed in range(runs)]
    tables, _ = most_changed(overview_of(make_sweep(made)))
    return [list(table.rows[0][1]) for table in tables]


def test_the_two_tensors_of_each_measure_are_those_worked_by_hand() -> None:
    """At 1e-8: 0.output grows from 2 to 2.02, 1.output shrinks from 1 to 0.9, 0.key hardly changes, 1.key not at all."""
    tables, prefix = most_changed(overview_of(simple_sweep()))
    assert prefix == "encoder.layer."
    first = [table.rows[0][1] for table in tables]
    assert first[0] == (("0.attention.self.key.weight", 3.001), ("0.output.dense.weight", pytest.approx(2.02)))
    assert first[1] == (("1.output.dense.bias", pytest.approx(0.1 / 1.9)), ("0.output.dense.weight", pytest.approx(0.02 / 4.02)))
    assert first[2] == (("1.output.dense.bias", pytest.approx(5e-4)), ("0.attention.self.key.weight", pytest.approx(2e-4)))


def test_a_tensor_that_did_not_change_is_never_named() -> None:
    """It has the largest weight of all."""
    tables, _ = most_changed(overview_of(full_sweep()))
    names = {name for table in tables for _, tensors in table.rows for name, _ in tensors}
    assert "1.attention.self.key.weight" not in names
    assert len(names) == 3


@pytest.mark.parametrize(("relative", "after", "moved"), [(0.1, 1.0, True), (0.0, 1.0, False), (None, 0.5, True), (None, 0.0, False)])
def test_a_tensor_of_zeros_changed_where_it_holds_something_now(relative, after, moved) -> None:
    assert changed(LayerChange("x", relative, 0.0, after, 0.0)) is moved


def test_a_tensor_of_zeros_has_no_relative_change() -> None:
    grown = LayerChange("grown", None, 0.0, 0.5, 1.0)
    by_weight, by_change, by_norm = top_of(grown, LayerChange("moved", 0.1, 1.0, 1.0, 0.0))
    assert by_weight == [("moved", 1.0), ("grown", 0.5)]
    assert by_change == [("grown", 1.0), ("moved", 0.0)]
    assert by_norm == [("moved", 0.1)]


def test_equal_values_keep_the_order_of_the_model() -> None:
    layers = [LayerChange(name, 0.1, 1.0, 1.0, 0.0) for name in ("c", "a", "b")]
    assert [name for name, _ in top_of(*layers)[0]] == ["c", "a"]


def test_values_are_means_over_the_runs_that_changed_the_tensor() -> None:
    def layers(*relatives: float) -> list[LayerChange]:
        return [LayerChange(name, relative, 1.0, 1.0, 0.0) for name, relative in zip("ab", relatives, strict=True)]

    runs = [make_run({RATE: 1e-8}, layers=layers(*relatives), seed=seed) for seed, relatives in enumerate([(0.1, 0.3), (0.2, 0.0)])]
    tables, _ = most_changed(overview_of(make_sweep(runs)))
    assert tables[2].rows[0][1] == (("b", 0.3), ("a", pytest.approx(0.15)))


def test_a_sweep_that_changed_nothing_has_no_table() -> None:
    frozen = [replace(layer, relative=0.0) for layer in make_layers(1e-8)]
    for runs in ([], [make_failed({RATE: 1e-8})], [make_run({RATE: 1e-8}, layers=frozen)], [make_run({RATE: 1e-8}, layers=[])]):
        assert most_changed(overview_of(make_sweep(runs))) == ([], "")


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["encoder.layer.0.a", "encoder.layer.11.b"], "encoder.layer."),
        (["embeddings.LayerNorm.weight", "encoder.layer.0.a"], "encoder.layer."),
        (["encoder.block.0.layer.0.a", "encoder.block.3.layer.1.b"], "encoder.block."),
        (["layers.4.a"], "layers."),
        (["0.a", "1.b"], ""),
        (["pooler.weight"], ""),
        ([], ""),
    ],
)
def test_what_stands_before_the_number_of_the_block_is_left_out(names, prefix) -> None:
    assert block_prefix(names) == prefix
