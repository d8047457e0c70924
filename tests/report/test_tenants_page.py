"""The page of towers for tenants: what it counts, and what it says of a tower that may lose."""

import csv
import io
from dataclasses import replace

from adiabat.report.tenants_page import exports, headline, page, reservations, terminal
from tests.report.html_page import html_of
from tests.report.sample_advice import make_gain
from tests.report.sample_tenants import make_tenant, make_tenants


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_the_headline_counts_each_tenant_once_and_no_chance_gain() -> None:
    told = plain(headline(make_tenants()))
    assert told.startswith("1 of 5 tenants got better")
    for fact in ("1 not worse", "1 undecided", "1 keep the untuned model", "1 without test queries"):
        assert fact in told
    worse = make_tenants(tenants=[make_tenant("a", gain=-4.0)])
    assert "1 worse" in plain(headline(worse))
    assert page(worse).tone == "bad"
    assert page(make_tenants()).tone == "good"
    assert page(make_tenants(tenants=make_tenants().tenants[2:])).tone == "plain"


def test_a_tower_that_loses_elsewhere_is_named_once() -> None:
    lost = {"retained": {"law": make_gain(-5.0)}, "model": "towers/shared"}
    result = make_tenants(tenants=[make_tenant("a", **lost), make_tenant("b", **lost)])
    told = [sentence for sentence in reservations(result) if "worse" in sentence]
    assert len(told) == 1
    assert "towers/shared" in told[0]
    assert page(result).tone == "bad"


def test_the_table_has_a_row_for_each_tenant_with_the_figures_of_its_towers() -> None:
    result = make_tenants()
    rows = list(csv.DictReader(io.StringIO(exports(result)["table.csv"]())))
    assert [row["tenant"] for row in rows] == [tenant.name for tenant in result.tenants]
    assert float(rows[0]["validation average"]) == 6.0
    assert rows[1]["validation average"] == ""
    assert [row["tower"] for row in rows] == ["average", "own", "shared", "shared", "start"]
    assert result.rows()[0]["model"] == "towers/a/average"
    (table,) = terminal(result)
    assert len(table.rows) == 5


def test_the_page_marks_risky_towers_chance_verdicts_and_the_call_that_serves() -> None:
    html = plain(html_of(make_tenants()))
    assert "may lose on" in html
    assert "(better)" in html
    assert "adiabat serve store --tower a=towers/a/average" in html
    without = [replace(tenant, retained={}) for tenant in make_tenants().tenants]
    assert 'id="retention"' not in html_of(make_tenants(tenants=without))
