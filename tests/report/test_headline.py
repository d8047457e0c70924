from dataclasses import replace

import pytest

from adiabat.report.evaluation_headline import headline, reservations, tone
from tests.report.html_page import plain
from tests.report.sample_results import make_change, make_dataset, make_grid, make_result, make_tuning

BETTER = make_dataset("cs", "target", 0.612, 0.661)
SAME = make_dataset("maths", "retain", 0.57, 0.572)
WORSE = make_dataset("physics", "retain", 0.50, 0.45)


def test_a_better_target_with_nothing_worse_is_good_news():
    result = make_result(BETTER, SAME, make_dataset("bio", "retain", 0.4, 0.5), make_dataset("law", "retain", 0.4, 0.4))
    assert plain(headline(result)) == (
        "The target cs got better: nDCG@10 0.612 → 0.661, +8.0 % [+4.7, +11.3]; none of the 3 retention sets got measurably worse."
    )
    assert tone(result) == "good"


def test_worse_retention_sets_are_named_with_their_loss():
    result = make_result(BETTER, SAME, WORSE, replace(WORSE, name="law"))
    assert plain(headline(result)).endswith(
        "; 2 of the 3 retention sets got worse: physics (nDCG@10 −10.0 % [−14.0, −6.0]), law (nDCG@10 −10.0 % [−14.0, −6.0])."
    )
    assert tone(result) == "bad"


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ([], "; no retention set was measured, so what else changed is not known."),
        ([SAME], "; the retention set maths did not get measurably worse."),
        ([WORSE], "; the retention set got worse: physics (nDCG@10 −10.0 % [−14.0, −6.0])."),
    ],
)
def test_no_retention_set_and_a_single_one_have_words_of_their_own(kept, words):
    assert plain(headline(make_result(BETTER, *kept))).endswith(words)


def test_a_better_second_target_does_not_hide_the_first():
    result = make_result(make_dataset("cs", "target", 0.6, 0.61), replace(BETTER, name="law"))
    assert tone(result) == "plain"
    assert "cs shows no evidence" in headline(result)
    assert "law got better" in headline(result)


def test_only_retention_sets_make_no_claim_about_a_target():
    result = make_result(SAME)
    assert headline(result) == "No target was measured; the retention set maths did not get measurably worse."
    assert tone(result) == "plain"


def test_without_a_baseline_nothing_is_said_of_change():
    result = make_result(make_dataset("cs", "target", None, 0.652), baseline=None)
    assert plain(headline(result)) == "cs: nDCG@10 0.652 [0.642, 0.662]. There is no baseline, so this says nothing about change."
    assert reservations(result) == []


def test_tuning_alone_speaks_of_its_validation_set_and_says_that_this_is_no_proof():
    result = make_result(training=make_tuning(), baseline=None)
    assert plain(headline(result)) == (
        "Tuning ran 3 epochs (300 steps) and kept epoch 2; on its validation set: loss 0.09000 → 0.07000, "
        "errors 2,000 → 1,500 of 4,000 pairs (−25.0 %)."
    )
    assert "held-out data" in reservations(result)[0]


def test_tuning_that_never_improved_says_so():
    result = make_result(training=make_tuning(best_epoch=0), baseline=None)
    assert plain(headline(result)) == "Tuning did not improve on the start in 3 epochs (300 steps); the starting weights were kept."


def test_no_evidence_is_put_as_the_loss_that_is_still_possible():
    result = make_result(BETTER, SAME, make_dataset("law", "retain", 0.5, 0.5, half_width=0.001))
    # maths: (0.002 - 0.02) / 0.57 = -3.16 %; law: -0.2 %
    assert any("at most 3.2 % (maths, nDCG@10)" in plain(sentence) for sentence in reservations(result))


def test_the_loss_still_possible_is_a_difference_where_there_are_no_percents():
    bare = make_dataset("law", "retain", 0.02, 0.03, measure="P@1", half_width=0.05)
    bare = replace(bare, changes=[replace(bare.changes[0], improvement_interval=None)])
    fewer_errors = make_dataset("web", "retain", 0.02, 0.01, measure="PND", half_width=0.05)
    fewer_errors = replace(fewer_errors, changes=[replace(fewer_errors.changes[0], improvement_interval=None)])
    (alone,) = reservations(make_result(BETTER, bare))
    assert plain(alone).endswith("leave room for a loss of at most 0.0400 (law, difference of P@1).")
    (every,) = reservations(make_result(BETTER, SAME, bare, fewer_errors))
    assert plain(every).endswith("at most 3.2 % (maths, nDCG@10), 0.0400 (law, difference of P@1), 0.0400 (web, difference of PND).")


def test_measures_that_fell_beside_a_main_measure_that_did_not_are_named():
    mixed = replace(SAME, changes=[*SAME.changes, make_change(0.5, 0.4, measure="P@1")])
    assert any(
        "On maths other measures got worse: P@1 by cosine (−20.0 % [−24.0, −16.0])." in plain(line)
        for line in reservations(make_result(mixed))
    )


def test_worsened_language_pairs_are_counted_even_where_the_average_is_not_worse():
    sentences = [plain(sentence) for sentence in reservations(make_result(make_grid(["en", "de"])))]
    assert "On XNLI, 1 of 4 language pairs got worse, 1 better (entailment-neutral by cosine)." in sentences


def test_a_target_without_evidence_is_not_called_better():
    result = make_result(make_dataset("cs", "target", 0.6, 0.61), SAME)
    assert plain(headline(result)).startswith("The target cs shows no evidence of change: nDCG@10 0.600 → 0.610, +1.7 % [−1.7, +5.0]; ")
    assert tone(result) == "plain"


def test_a_worse_target_is_called_worse():
    result = make_result(make_dataset("cs", "target", 0.6, 0.5))
    assert headline(result).startswith("The target cs got worse: ")
    assert tone(result) == "bad"
