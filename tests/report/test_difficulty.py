"""Pictures and tables of errors by difficulty."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from adiabat.measure.results import Change
from adiabat.report.difficulty import difficulty_rows, error_curves, improvement_curves

SVG = "{http://www.w3.org/2000/svg}"


def change(difficulty: int, *, compared: bool = True) -> Change:
    after = 0.4 / difficulty
    alone = Change(f"PND, difficulty {difficulty}", "cosine", True, after=after, after_interval=(after - 0.02, after + 0.02))
    if not compared:
        return alone
    return replace(
        alone,
        before=after + 0.01,
        improvement=3.0,
        difference=-0.01,
        difference_interval=(-0.02, -0.001),
        improvement_interval=(0.5, 5.5),
        p=0.03,
        verdict="better",
    )


CHANGES = [change(difficulty) for difficulty in range(1, 22)]


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_row_per_difficulty_with_and_without_a_baseline() -> None:
    assert difficulty_rows(CHANGES)[1] == (
        "2",
        "0.2000",
        "[0.1800,\xa00.2200]",
        "0.2100",
        "+3.0 % [+0.5,\xa0+5.5]".replace(" %", "\xa0%"),
        "▲\xa0better",
    )
    assert difficulty_rows([change(1, compared=False)]) == [("1", "0.4000", "[0.3800,\xa00.4200]")]
    assert len(difficulty_rows(CHANGES)) == 21


def test_of_a_single_query_there_is_no_interval() -> None:
    single = [replace(change(number, compared=False), after_interval=None) for number in (1, 2)]
    assert difficulty_rows(single) == [("1", "0.4000", "–"), ("2", "0.2000", "–")]
    assert error_curves({"one": single}).count("<path") < error_curves({"one": CHANGES[:2]}).count("<path")


def test_curves_name_their_models_and_say_which_end_is_hard() -> None:
    svg = error_curves({"MiniLM": CHANGES, "e5 <small>": [change(n, compared=False) for n in range(1, 22)]})
    assert {"MiniLM", "e5 <small>", "PND, % of queries in error"} <= set(texts(svg))
    assert {"difficulty (1: the most alike negative; the last: a random one)", "1", "21"} <= set(texts(svg))


def test_where_there_is_no_evidence_the_marker_is_open() -> None:
    def paper_filled(changes: list[Change]) -> int:
        return improvement_curves({"tuned": changes}).count("fill: var(--card")

    unsure = [replace(one, verdict="no evidence") for one in CHANGES[:5]] + CHANGES[5:]
    assert paper_filled(unsure) > paper_filled(CHANGES)


def test_a_difficulty_at_which_the_baseline_has_no_errors_is_a_gap() -> None:
    flawless = replace(CHANGES[-1], before=0.0, improvement=None, improvement_interval=None, verdict="no evidence")
    assert improvement_curves({"tuned": [*CHANGES[:-1], flawless]}).count("<use") < improvement_curves({"tuned": CHANGES}).count("<use")


def test_the_same_data_give_the_same_bytes() -> None:
    assert error_curves({"a": CHANGES}) == error_curves({"a": CHANGES})


def test_more_models_than_can_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="models must be 1 to 4 to be told apart, got 5"):
        error_curves({str(number): CHANGES for number in range(5)})
    with pytest.raises(ValueError, match="got 0"):
        improvement_curves({})
