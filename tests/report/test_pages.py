"""Every page: its sections, its figures, and that no text of the user's is markup."""

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from adiabat.report import pages
from adiabat.results.record import Record, read_result, write_result
from adiabat.results.space_result import Distribution, SpaceNumber
from tests.report.html_page import NASTY, Page
from tests.report.html_page import html_of as page_of
from tests.report.sample_advice import make_advice
from tests.report.sample_results import full_result, make_dataset, make_grid, make_result, make_tuning
from tests.report.sample_safe_rates import full_search, seeds_search
from tests.report.sample_spaces import make_space
from tests.report.sample_suites import full_suite
from tests.report.sample_sweeps import full_sweep
from tests.report.sample_tenants import make_tenants

TRAINED, SUITE = "training layers settings", "models-by-tasks over-all tasks"
SWEEP = "settings-table all-measures against-0"
SAMPLES: dict[str, tuple[Callable[[], Record], str, int]] = {
    "evaluation": (full_result, f"datasets all-measures how-to-read languages-2 examples {TRAINED}", 5),
    "training": (partial(make_result, training=make_tuning(), baseline=None), TRAINED, 3),
    "suite": (full_suite, f"{SUITE} task-0 task-3 task-0-units how-to-read inputs", 8),
    "suite beside a baseline": (partial(full_suite, baseline="small"), SUITE, 8),
    "space": (make_space, "numbers nearness ratio map reading how-to-read inputs", 5),
    "advice": (make_advice, "figures headroom retention reading how-to-read inputs settings", 0),
    "tenants": (make_tenants, "verdicts choices retention served reading how-to-read inputs settings", 0),
    "sweep": (full_sweep, f"{SWEEP} trade layers drift costs runs how-to-read-settings inputs settings", 5),
    "rate search": (full_search, "figures runs measures how-to-read inputs", 2),
    "rate search with seeds": (seeds_search, "seeds", 2),
}
"""Record to ids that its page has, and how many figures."""

every_sample = pytest.mark.parametrize("sample", SAMPLES)


@cache
def html_of(sample: str) -> str:
    return page_of(SAMPLES[sample][0]())


@every_sample
def test_a_page_has_every_part_once(sample: str) -> None:
    shown = Page(html_of(sample))
    _, parts, figures = SAMPLES[sample]
    assert {"verdict", "made", "versions", *parts.split()} <= set(shown.ids())
    assert len(shown.ids()) == len(set(shown.ids()))
    assert len(shown.tags("svg")) == figures
    assert all(figure.get("aria-label") for figure in shown.tags("figure"))
    # The contents lead to parts that are there.
    assert {link["href"] for link in shown.tags("a")} <= {f"#{name}" for name in shown.ids()}


@every_sample
def test_a_record_that_is_read_again_has_the_same_headline_reasons_and_page(
    sample: str, tmp_path: Path
) -> None:
    record = SAMPLES[sample][0]()
    write_result(record, tmp_path)
    again = read_result(tmp_path / "result.json")
    assert pages.verdict(again) == pages.verdict(record)
    assert pages.verdict(again)[0].endswith(".")
    assert page_of(again) == html_of(sample)


@every_sample
def test_every_row_has_as_many_cells_as_its_head_and_every_table_scrolls_in_its_box(sample: str) -> None:
    html = html_of(sample)
    for table in re.findall(r"<table.*?</table>", html, re.DOTALL):
        rows = [len(re.findall(r"<t[hd][ >]", row)) for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)]
        heads = 2 if 'class="kinds"' in table else 1
        assert len(set(rows[heads - 1 :])) == 1
    assert len(re.findall(r'<div class="scroll[^>]*>\s*<table', html)) == html.count("<table")


LOADING = ("img", "iframe", "object", "embed", "image", "audio", "video", "form", "base")


@every_sample
def test_a_page_loads_nothing_and_runs_its_own_script_alone(sample: str) -> None:
    shown = Page(html_of(sample))
    assert {tag for tag, _ in shown.elements}.isdisjoint(LOADING)
    assert len(shown.tags("script")) == 1
    for _, attributes in shown.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert html_of(sample).replace("http://www.w3.org/2000/svg", "").count("://") == 0
    metas = {meta.get("http-equiv"): meta.get("content") for meta in shown.tags("meta")}
    policy = r"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-[^']{44}'"
    assert re.fullmatch(policy, metas["Content-Security-Policy"] or "")


OF_RECORDS = "kind role test measure similarity main status unit of drift noise ranks"
WORDS = {*OF_RECORDS.split(), "verdict", "verdicts", "reasons"}
"""Fields that hold no text of the user's."""


def nasty(value: Any, field: str = "") -> Any:
    """A record whose texts are all markup; equal texts stay equal."""
    if field in WORDS:
        return value
    if isinstance(value, str):
        return NASTY + value
    if is_dataclass(value) and not isinstance(value, type):
        fixed = {"name"} if isinstance(value, SpaceNumber | Distribution) else set()
        names = {one.name for one in fields(value)} - fixed
        return replace(value, **{name: nasty(getattr(value, name), name) for name in names})
    if isinstance(value, dict):
        return {nasty(key): nasty(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(nasty(item) for item in value)
    return value


@every_sample
def test_markup_in_any_text_is_inert(sample: str) -> None:
    record = nasty(SAMPLES[sample][0]())
    shown = Page(page_of(record))
    assert len(shown.tags("script")) == 1
    assert shown.tags("img") == []
    assert len(shown.tags("title")) == 1
    assert all("onerror" not in attributes for _, attributes in shown.elements)
    assert shown.text.count("{{ 7 * 7 }}") >= 8


def test_characters_that_no_page_can_hold_are_replaced_and_huge_texts_are_cut() -> None:
    html = page_of(make_result(make_dataset("a\x00b\ud800", "target", 0.5, 0.6)))
    html.encode("utf-8")
    assert "\x00" not in html
    huge = "word " * 20_000
    assert len(page_of(make_result(make_dataset(huge, "target", 0.5, 0.6), title=huge))) < 120_000


def test_closed_parts_stay_closed_on_paper_and_layers_are_folded() -> None:
    html = html_of("evaluation")
    assert "details-content" not in html
    assert re.search(r'<details class="fold" id="layers">', html)


def test_ids_are_unique_with_two_grids() -> None:
    result = full_result()
    two = replace(result, datasets=[*result.datasets, make_grid(["en", "de"], name="second")])
    ids = Page(page_of(two)).ids()
    assert len(ids) == len(set(ids))
