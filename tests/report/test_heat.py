import matplotlib.colors
import numpy as np
import pytest

from adiabat.report import heat_cells as heat


def test_a_heat_map_is_centred_at_zero():
    colours, scale = heat.colours(np.array([[6.0, -1.0], [0.0, np.nan]]), compared=True)
    red, green, blue, _ = colours(scale(0.0))
    assert max(red, green, blue) - min(red, green, blue) < 0.02
    assert scale(6.0) == 1
    assert scale(-6.0) == 0


def test_changes_of_nearly_nothing_do_not_get_full_colour():
    _, scale = heat.colours(np.array([[0.1]]), compared=True)
    assert 0.5 < scale(0.1) < 0.6


@pytest.mark.parametrize("value", np.linspace(-10, 10, 21))
def test_letters_on_cells_have_enough_contrast(value):
    colours, scale = heat.colours(np.array([[10.0]]), compared=True)

    def luminance(rgb):
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    letter = heat.legible(value, colours, scale)
    light, dark = sorted((luminance(matplotlib.colors.to_rgb(letter)), luminance(colours(scale(value))[:3])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_cells_hold_what_is_shown_and_a_cell_without_a_value_holds_a_dash():
    values = np.array([[0.25, np.nan]])
    (row,) = heat.value_cells(values, among=values)
    assert [cell.text for cell in row] == ["25.0", "–"]
    assert row[1].background == "transparent"
    (changes,) = heat.change_cells(np.array([[-0.0004, 0.031]]), np.array([[False, True]]), among=np.array([0.031]), lower_is_better=False)
    assert [(cell.text, cell.marked) for cell in changes] == [("0.0", False), ("+3.1", True)]
    assert changes[1].background == "#12508a"
