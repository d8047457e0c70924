"""Verdicts that are less certain than they look: the note, the headline, and its colour."""

import re
from dataclasses import replace

import numpy as np
import pytest

from adiabat.evaluation.evaluate import dataset_result
from adiabat.report import pages
from adiabat.report.evaluation_headline import headline, reservations, tone
from adiabat.report.verdict_words import SENTENCES
from adiabat.results.evaluation_result import Part, TrainedOn
from adiabat.results.verdict import EXPLAINING, Reason
from adiabat.stats.clusters import Clusters
from tests.evaluation.scored import ranked
from tests.report.html_page import html_of, plain
from tests.report.sample_results import make_dataset, make_result, with_reasons

BETTER = make_dataset("cs", "target", 0.6, 0.65)
HELD = make_dataset("law", "retain", 0.5, 0.5, half_width=0.004)


def test_verdicts_on_queries_that_depend_on_one_another_are_no_good_news_and_that_is_said() -> None:
    """A hub document connects 60 of the queries, which are drawn one by one."""
    before = ranked([0.5, 0.6] * 50)
    sample = replace(before.samples[0], clusters=Clusters(np.repeat([0, 1], [40, 60])))
    pooled = replace(sample, measure="PND pooled")
    measured = replace(before, samples=[sample, pooled], notes=("a note",))
    better = replace(
        measured, samples=[replace(sample, values=sample.values + np.linspace(0.01, 0.03, 100)), pooled]
    )
    dataset = dataset_result([better], measured, None, role="target", seed=0, resamples=200)
    result = make_result(dataset, HELD)
    assert (dataset.main_change().verdict, dataset.clusters) == ("undecided", None)
    assert dataset.main_change().reasons == [Reason.FEW_CLUSTERS]
    assert dataset.notes[0] == "a note"
    assert "100 queries into 2 clusters" in plain(dataset.notes[1])
    assert f"The target {dataset.name} is undecided ({SENTENCES[Reason.FEW_CLUSTERS]})" in headline(result)
    assert (tone(result), dataset.main_change().not_worse) == ("plain", False)
    worse = dataset_result([measured], better, None, role="target", seed=0, resamples=200)
    assert worse.main_change().verdict == "worse"
    assert f"got worse ({SENTENCES[Reason.FEW_CLUSTERS]})" in headline(make_result(worse, HELD))


@pytest.mark.parametrize(("queries", "doubts"), [(6, [Reason.FEW_UNITS]), (10, [])])
def test_a_verdict_on_very_few_queries_is_doubted(queries: int, doubts: list[Reason]) -> None:
    before = ranked([0.5, 0.6] * (queries // 2))
    pooled = replace(before.samples[0], measure="PND pooled")
    better = replace(before.samples[0], values=before.samples[0].values + np.linspace(0.02, 0.2, queries))
    measured = [replace(before, samples=[sample, pooled]) for sample in (better, before.samples[0])]
    dataset = dataset_result(measured[:1], measured[1], None, role="target", seed=0, resamples=200)
    assert (dataset.main_change().verdict, dataset.doubts) == ("better", doubts)
    assert tone(make_result(dataset, HELD)) == ("plain" if doubts else "good")


def test_a_better_retention_set_of_few_queries_may_hide_a_loss() -> None:
    """Fifty queries gain a thousandth each: one in 50 of all queries may lose all it has, and none of these
    was drawn.
    """
    before = ranked([0.5, 0.6] * 25)
    pooled = replace(before.samples[0], measure="PND pooled")
    better = replace(before.samples[0], values=before.samples[0].values + 0.001)
    measured = [replace(before, samples=[sample, pooled]) for sample in (better, before.samples[0])]
    dataset = dataset_result(measured[:1], measured[1], None, role="retain", seed=0, resamples=200)
    change, result = dataset.main_change(), make_result(replace(HELD, role="target"), dataset)
    assert (change.verdict, change.not_worse) == ("better", False)
    assert headline(result).endswith(f"; {dataset.name} got better ({SENTENCES[Reason.LOSS_POSSIBLE]}).")
    assert result.failing("undecided") == [
        f"{dataset.name} (better, but a loss of the margin is not excluded)"
    ]
    assert (tone(make_result(BETTER, dataset)), tone(make_result(BETTER, HELD))) == ("plain", "good")


@pytest.mark.parametrize(("reason", "is_doubt"), [(reason, reason not in EXPLAINING) for reason in Reason])
def test_a_verdict_with_a_doubt_is_no_good_news(reason: Reason, is_doubt: bool) -> None:
    result = make_result(with_reasons(BETTER, reason), HELD)
    assert tone(result) == ("plain" if is_doubt else "good")
    assert result.failing("undecided") == ([f"cs (better, but {reason})"] if is_doubt else [])
    assert result.failing("worse") == []
    worse = make_result(with_reasons(make_dataset("cs", "target", 0.6, 0.5), reason), HELD)
    assert (tone(worse), worse.failing("worse")) == ("bad", ["cs"])


def test_every_reason_has_a_sentence() -> None:
    assert SENTENCES.keys() == set(Reason)
    assert len(set(SENTENCES.values())) == len(Reason)


def test_near_duplicates_limit_the_verdict_and_are_counted_beside_equal_queries() -> None:
    """Of 400 queries 40 are near duplicates, and these are 40 of the 60 that decide."""
    trained = [TrainedOn("job", 400, 5, 400, 9, 340, near_queries=40)]
    parts = [Part("new documents", 60, BETTER.main_change())]
    dataset = replace(with_reasons(BETTER, Reason.NEAR_DUPLICATES), parts=parts, trained=trained)
    result = make_result(dataset, HELD)
    assert f"on queries with new documents ({SENTENCES[Reason.NEAR_DUPLICATES]}): " in headline(result)
    assert "near duplicates" not in headline(make_result(replace(dataset, changes=BETTER.changes), HELD))
    (told,) = (line for line in map(plain, reservations(result)) if "trained or validated" in line)
    assert "5 of 400 queries and near duplicates of 40 others and 9 of their 400 relevant documents" in told


@pytest.mark.parametrize("reason", [Reason.FEW_UNITS, Reason.RUNS_DIFFER])
def test_a_reason_that_retention_sets_share_is_told_once(reason: Reason) -> None:
    held = [replace(with_reasons(HELD, reason), name=name) for name in ("law", "maths")]
    said = headline(make_result(BETTER, *held))
    assert said.endswith(f"; each of these: {SENTENCES[reason]}.")
    assert headline(make_result(BETTER, held[0], HELD)).endswith(f"; law: {SENTENCES[reason]}.")


def test_a_note_that_begins_with_the_name_of_its_set_is_shown_with_one_name() -> None:
    told = "3 documents missing from the store left out"
    notes = [f"{BETTER.name}: {told}", "positives are compared with all others"]
    shown = plain(html_of(make_result(replace(BETTER, notes=notes))))
    assert f"{BETTER.name}: {BETTER.name}:" not in re.sub(r"<[^>]*>| +", " ", shown).replace("  ", " ")
    assert told in shown


def test_models_with_one_query_tower_are_a_reason_and_no_note() -> None:
    equal = "Model and baseline have the same query tower"
    result = make_result(replace(BETTER, notes=[equal]), equal_towers=[equal])
    assert f"{equal}." in pages.verdict(result)[1]
    assert html_of(result).count(equal) == 1
