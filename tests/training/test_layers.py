import numpy as np
import pytest
import torch

from adiabat.core.errors import ModelError
from adiabat.results.evaluation_result import LayerChange
from adiabat.training import run_record as layers
from adiabat.training.run_record import layer_changes


def test_a_change_worked_by_hand() -> None:
    # |after - before| = |(0, 3)| = 3, |before| = 5; largest 4 -> 7, (7 - 4) / (7 + 4).
    (change,) = layer_changes({"w": torch.tensor([3.0, -4.0])}, {"w": torch.tensor([3.0, -7.0])})
    assert change == LayerChange(name="w", relative=0.6, largest_before=4.0, largest_after=7.0, largest_change=3 / 11)


def test_changes_agree_with_numpy_over_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_CHUNK", 7)
    before, after = (torch.randn(5, 11, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    (change,) = layer_changes({"w": before}, {"w": after})
    old, new = before.double().numpy(), after.double().numpy()
    assert change.relative == pytest.approx(np.linalg.norm(new - old) / np.linalg.norm(old), rel=1e-12)
    assert change.largest_before == np.abs(old).max()
    assert change.largest_after == np.abs(new).max()


def test_relative_change_does_not_depend_on_the_unit_of_the_weights() -> None:
    before, after = (torch.randn(6, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    (small,) = layer_changes({"w": before}, {"w": after})
    (large,) = layer_changes({"w": 8 * before}, {"w": 8 * after})
    assert large.relative == pytest.approx(small.relative)
    assert large.largest_change == pytest.approx(small.largest_change)


def test_a_step_of_one_float32_unit_is_seen() -> None:
    before = torch.full((1000,), 0.05)
    after = torch.nextafter(before, torch.ones(()))
    (change,) = layer_changes({"w": before}, {"w": after})
    assert change.relative == pytest.approx((after[0].double() - before[0].double()).item() / before[0].item(), rel=1e-6)


def test_a_tensor_that_was_zero_has_no_relative_change() -> None:
    zeros = torch.zeros(2)
    moved, still = layer_changes({"moved": zeros, "still": zeros}, {"moved": torch.ones(2), "still": zeros})
    assert (moved.relative, moved.largest_change) == (None, 1.0)
    assert (still.relative, still.largest_change) == (None, 0.0)


def test_every_name_is_listed_in_the_given_order_unchanged_ones_too() -> None:
    before = {name: torch.ones(2) for name in ("c", "a", "b")}
    after = dict(reversed(list(before.items())))
    changes = layer_changes(before, after)
    assert [change.name for change in changes] == ["c", "a", "b"]
    assert {(change.relative, change.largest_change) for change in changes} == {(0.0, 0.0)}


def test_half_precision_parameters_and_empty_tensors_are_taken() -> None:
    before = {"half": torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16)), "empty": torch.empty(0)}
    half, empty = layer_changes(before, {"half": torch.full((3,), 2.0), "empty": torch.empty(0)})
    assert half.relative == 1.0
    assert empty == LayerChange("empty", None, 0.0, 0.0, 0.0)


def test_weights_of_different_models_are_refused_with_every_difference() -> None:
    before = {"a": torch.ones(2), "b": torch.ones(2), "c": torch.ones(3)}
    after = {"b": torch.ones(2), "c": torch.ones(1, 3), "d": torch.ones(2)}
    with pytest.raises(ModelError) as caught:
        layer_changes(before, after)
    assert str(caught.value) == (
        'weights must be of the same model, got 3 differences: "a" before only; "d" after only; '
        '"c" of shape (3,) before and (1, 3) after; compare a model with the one that it was trained from'
    )


def test_the_report_of_a_trained_step_names_just_the_trained_tensor() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    model[0].requires_grad_(False)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    model(torch.ones(2, 3)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    moved = [change.name for change in layer_changes(before, dict(model.named_parameters())) if change.relative]
    assert moved == ["1.weight", "1.bias"]
