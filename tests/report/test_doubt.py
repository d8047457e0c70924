"""Verdicts that are less certain than they look: the note, the headline, and its colour."""

from dataclasses import replace

import numpy as np
import pytest

from adiabat.evaluation.evaluate import dataset_result
from adiabat.report import evaluation_page
from adiabat.report.evaluation_headline import headline, tone
from adiabat.stats.clusters import Clusters
from tests.evaluation.scored import ranked
from tests.report.html_page import plain
from tests.report.sample_results import make_dataset, make_result

HELD = make_dataset("law", "retain", 0.5, 0.5, half_width=0.004)


def test_verdicts_on_queries_that_depend_on_one_another_are_no_good_news_and_that_is_said() -> None:
    """A hub document connects 60 of the queries, which are drawn one by one."""
    before = ranked([0.5, 0.6] * 50)
    sample = replace(before.samples[0], clusters=Clusters(np.repeat([0, 1], [40, 60])))
    pooled = replace(sample, measure="PND pooled")
    measured = replace(before, samples=[sample, pooled], notes=("a note",))
    better = replace(measured, samples=[replace(sample, values=sample.values + np.linspace(0.01, 0.03, 100)), pooled])
    dataset = dataset_result([better], measured, None, role="target", seed=0, resamples=200)
    result = make_result(dataset, HELD)
    assert (dataset.main_change().verdict, dataset.notes, dataset.clusters) == ("better", ["a note"], None)
    assert dataset.doubt.endswith("verdicts too sure")
    assert f"{dataset.name}: {dataset.doubt}." in evaluation_page.notes(result)
    assert f"the verdict on {dataset.name} is less certain than it looks" in plain(headline(result))
    assert (tone(result), tone(make_result(replace(dataset, doubt=""), HELD))) == ("plain", "good")


@pytest.mark.parametrize(("queries", "doubt"), [(6, "better on 6 queries, and fewer than 10 say little about others"), (10, "")])
def test_a_verdict_on_very_few_queries_is_doubted(queries: int, doubt: str) -> None:
    before = ranked([0.5, 0.6] * (queries // 2))
    pooled = replace(before.samples[0], measure="PND pooled")
    better = replace(before.samples[0], values=before.samples[0].values + np.linspace(0.02, 0.2, queries))
    measured = [replace(before, samples=[sample, pooled]) for sample in (better, before.samples[0])]
    dataset = dataset_result(measured[:1], measured[1], None, role="target", seed=0, resamples=200)
    assert (dataset.main_change().verdict, plain(dataset.doubt)) == ("better", doubt)
