"""What measures mean: a sentence for each that a page can show, whatever its cutoff."""

import html
from dataclasses import replace

import ir_measures
import pytest
from ir_measures.measures import registry

from adiabat.report.measure_terms import explained
from tests.report.html_page import Page, html_of, plain
from tests.report.sample_results import make_change, make_dataset, make_result
from tests.report.sample_suites import full_suite
from tests.stats.test_ranking_measures import is_known

DEFAULT = ["nDCG@10", "Recall@100", "RR@10"]


@pytest.mark.parametrize("family", sorted(registry))
def test_every_measure_that_can_be_computed_has_one_sentence_with_its_cutoff(family: str) -> None:
    forms = (family, f"{family}@7", f"{family}@0.5", f"{family}(rel=2)@7")
    for name in filter(is_known, forms):
        assert ir_measures.parse_measure(name)
        ((_, sentence),) = explained([name])
        assert sentence.endswith(".")
        assert ". " not in sentence
        assert ("first 7 documents" in sentence) == (name.endswith("@7") and family != "IPrec")
        assert ("grade 2 or more" in sentence) == ("rel=2" in name)


def test_the_default_measures_read_so() -> None:
    said = dict(explained([*DEFAULT, "RR@10"]))
    assert list(said) == DEFAULT
    assert said["nDCG@10"].startswith("How well the first 10 documents are ordered")
    recall = "The share of a query's relevant documents that stand among the first 100 documents."
    assert said["Recall@100"] == recall
    assert "0.5 on rank 2, 0 if none stands among the first 10 documents" in said["RR@10"]
    assert explained(["R@5"])[0][1] == dict(explained(["Recall@5"]))["Recall@5"]
    assert "first document is relevant" in explained(["P@1"])[0][1]
    # Names that other programs alone know have no sentence.
    assert explained(["ndcg_at_10", "made up"]) == []


def test_a_page_explains_each_measure_once_and_the_reported_ones_before_the_first_figure() -> None:
    changes = [make_change(0.5, 0.6, measure=name) for name in [*DEFAULT, "PND"]]
    dataset = replace(make_dataset("law", "target", 0.5, 0.6), changes=changes)
    page = html_of(make_result(dataset))
    shown = html.unescape(plain(page))
    for name, sentence in explained([*DEFAULT, "PND"]):
        assert shown.count(sentence) == 1, name
    assert page.index('id="measures"') < page.index("<figure") < page.index("strictly closer to the query")
    assert "measures" in Page(page).ids()


def test_a_suite_explains_the_measures_of_its_tasks() -> None:
    shown = html.unescape(plain(html_of(full_suite())))
    for name, sentence in explained(task.measure for task in full_suite().tasks):
        assert shown.count(sentence) == 1, name
