"""The recommendation of `adiabat advise`: every rule, and which of two comes first."""

from typing import Any

import pytest

from adiabat.experiments.advice_rules import recommend
from tests.report.sample_advice import make_advised, make_gain

LEAVE, FUSE, BOTH, TUNE, MORE, EMBED = (
    "leave it",
    "fuse with BM25",
    "fuse with BM25, then tune",
    "tune the query tower",
    "get more data",
    "re-embed with a better model",
)


@pytest.mark.parametrize(
    ("figures", "detectable", "choice", "facts"),
    [
        # Too few queries, whatever they seem to say.
        ({"queries": 49, "fused": 9.0, "mapped": 9.0}, 1.0, MORE, ["49\N{NO-BREAK SPACE}queries"]),
        ({"queries": 50, "fused": 9.0}, 1.0, FUSE, ["+9.0 %"]),
        # BM25 alone is best.
        (
            {"bm25": 12.0, "fused": 8.0, "mapped": 9.0},
            1.0,
            EMBED,
            ["BM25", "+12.0 % [+11.0, +13.0]", "over its fusion with the model +3.7 %"],
        ),
        # By more than the fusion, as an estimate, but the pairs do not show it.
        (
            {"bm25": 12.0, "fused": 8.0, "bm25_over_fused": make_gain(3.7, half_width=4.0)},
            1.0,
            FUSE,
            ["+8.0 %", "over its fusion with the model +3.7 % [\N{MINUS SIGN}0.3, +7.7]"],
        ),
        (
            {"bm25": 12.0, "fused": 1.0, "bm25_over_fused": make_gain(10.9, half_width=11.0)},
            4.0,
            MORE,
            ["BM25 +12.0 %"],
        ),
        (
            {"queries": 40, "left_out": 60},
            1.0,
            MORE,
            ["queries that the model was not trained on are too few"],
        ),
        ({"bm25": 8.0, "fused": 12.0}, 1.0, FUSE, ["+12.0 %"]),
        ({"bm25": 10.0, "fused": 9.5}, 1.0, FUSE, ["+9.5 %"]),
        ({"bm25": 1.5, "fused": 0.0}, 1.0, LEAVE, []),
        # Fusion or tuning, by the larger gain; the other is named too.
        ({"fused": 6.0, "mapped": 2.0}, 1.0, BOTH, ["+6.0 %", "+2.0 %"]),
        ({"fused": 6.0, "mapped": 1.0}, 1.0, BOTH, ["+6.0 %", "+1.0 %"]),
        ({"fused": 6.0, "mapped": 0.9}, 1.0, FUSE, ["+6.0 %", "+0.9 %"]),
        (
            {"fused": 6.0, "mapped": make_gain(2.0, half_width=2.1)},
            1.0,
            FUSE,
            ["+2.0 %", "adiabat.tune tries"],
        ),
        ({"fused": 2.0, "mapped": 6.0}, 1.0, TUNE, ["+6.0 % [+5.0, +7.0]", "+2.0 %"]),
        ({"fused": 0.9}, 1.0, LEAVE, ["No interval reaches above 2 %"]),
        ({"mapped": 1.1}, 1.0, TUNE, ["+1.1 %"]),
        # A gain that is no evidence is none: its interval is one percent to either side.
        ({"mapped": 0.9, "fused": 0.5}, 1.0, LEAVE, ["1.0 %"]),
        ({"mapped": -4.0, "fused": -2.0}, 1.0, LEAVE, []),
        # Nothing helps: because answers are out of reach, because the set is blunt, or because there is
        # nothing to gain.
        ({"headroom": (500, 100, 200)}, 1.0, EMBED, ["25 %", "first 100"]),
        ({"headroom": (500, 100, 200), "mapped": 5.0}, 1.0, TUNE, ["+5.0 %"]),
        ({"headroom": (501, 100, 199)}, 1.0, LEAVE, ["800\N{NO-BREAK SPACE}queries"]),
        ({}, 2.0, LEAVE, ["2.0 %"]),
        ({}, 4.0, MORE, ["4.0 %", "about 3,200\N{NO-BREAK SPACE}queries"]),
        ({}, None, MORE, []),
        # What was not measured is not named.
        ({"bm25": None, "fused": None}, 1.0, LEAVE, ["a linear map of the query vectors"]),
        ({"mapped": None}, 1.0, LEAVE, ["that fusion"]),
        ({"bm25": None, "fused": None, "mapped": None}, 4.0, MORE, ["neither of BM25 nor of a linear map"]),
        ({"bm25": None, "fused": None, "mapped": None}, 1.2, MORE, ["Nothing is known"]),
        # Gains that are shown, and too small to act on, are not denied.
        (
            {"fused": make_gain(1.4, half_width=0.5), "mapped": 0.7},
            1.0,
            LEAVE,
            ["that fusion +1.4 % [+0.9, +1.9]"],
        ),
        # A gain of 2 % is not excluded: the sharpness of the linear map says nothing about fusion.
        (
            {"fused": make_gain(2.8, half_width=4.0)},
            1.4,
            MORE,
            ["Fusion with BM25 may gain 2 %: 800", "+2.8 % [\u22121.2, +6.8]", "about 6,300"],
        ),
        (
            {"mapped": make_gain(0.9, half_width=1.3)},
            1.8,
            MORE,
            ["A linear map may gain 2 %", "four times as many"],
        ),
        ({"fused": 1.9, "measured": 400}, 1.0, MORE, ["800", "would show a gain of 5.6 %"]),
        (
            {"mapped": make_gain(0.9, half_width=1.3), "measured": 400},
            1.8,
            MORE,
            ["more than 400 of 800", "advise.queries"],
        ),
    ],
)
def test_the_first_rule_that_applies_decides(
    figures: dict[str, Any], detectable: float | None, choice: str, facts: list[str]
) -> None:
    found = recommend(make_advised(**figures), detectable, 5.6)
    assert found.choice == choice
    assert [fact for fact in facts if fact not in found.reason] == [], found.reason
    assert found.reason.endswith(".")
    if figures.get("fused", 0) is None:
        assert "fusion" not in found.reason
