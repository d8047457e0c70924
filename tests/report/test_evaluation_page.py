"""The page of an evaluation and of a training run: headline and reservations, rows and figures, and the table
for the terminal.
"""

import re
from dataclasses import replace

import pytest

from adiabat.report import evaluation_page, training_page
from adiabat.report.evaluation_headline import headline, margin_of, reservations, tone
from adiabat.report.evaluation_page import EXAMPLES_SHOWN
from adiabat.report.verdict_words import SENTENCES
from adiabat.results.evaluation_result import DatasetResult, Hit, Part, Result, TrainedOn
from adiabat.results.verdict import Reason, Word
from tests.report.html_page import Page, html_of, plain, printed
from tests.report.sample_results import (
    full_result,
    make_change,
    make_dataset,
    make_example,
    make_grid,
    make_result,
    make_tuning,
    with_reasons,
)

BETTER = make_dataset("cs", "target", 0.612, 0.661)
SAME = make_dataset("maths", "retain", 0.57, 0.572)
HELD = make_dataset("law", "retain", 0.5, 0.5, half_width=0.004)
UNDECIDED = "maths is undecided (needs about 1,900 queries, has 300)"
WORSE = make_dataset("physics", "retain", 0.50, 0.45)
BIO = replace(BETTER, name="bio", role="retain")
TO_LOSE = make_dataset("cs", "target", 0.6, 0.5)
UNCHANGED = make_dataset("cs", "target", 0.6, 0.6, half_width=0.004)
OPEN = make_dataset("cs", "target", 0.6, 0.61)
LOSS = "(nDCG@10 −10.0 % [−14.0, −6.0])"
KEPT = "not worse by more than 1 % on"
BETTER_CS = "The target cs got better: nDCG@10 0.612 → 0.661, +8.0 % [+4.7, +11.3]; "
NOT_CS = (
    "The target cs is undecided (needs about 1,900 queries, has 300): "
    "nDCG@10 0.600 → 0.610, +1.7 % [−1.7, +5.0]"
)
SAME_CS = (
    "The target cs shows no gain, and a loss of more than 1 % is excluded: "
    "nDCG@10 0.600 → 0.600, 0.0 % [−0.7, +0.7]; "
)
WORSE_CS = "The target cs got worse: nDCG@10 0.600 → 0.500, −16.7 % [−20.0, −13.3]; "
NOTHING_RETAINED = "no retention set was measured, so effects on other tasks are unknown."


@pytest.mark.parametrize(
    ("datasets", "sentence", "news"),
    [
        ([BETTER, HELD, BIO, HELD], f"{KEPT} all 3 retention sets.", "good"),
        (
            [BETTER, HELD, SAME, HELD, SAME],
            f"{KEPT} 2 of 4 retention sets; {UNDECIDED}; {UNDECIDED}.",
            "plain",
        ),
        ([BETTER, HELD], f"{KEPT} the retention set.", "good"),
        ([BETTER], NOTHING_RETAINED, "good"),
        ([BETTER, SAME], f"{UNDECIDED}.", "plain"),
        ([BETTER, WORSE], f"the retention set got worse: physics {LOSS}.", "bad"),
        (
            [BETTER, SAME, WORSE, HELD, replace(WORSE, name="bio")],
            f"2 of 4 retention sets got worse: physics {LOSS}, bio {LOSS}; "
            f"{KEPT} 1 of 4 retention sets; {UNDECIDED}.",
            "bad",
        ),
        ([SAME], f"No target was measured; {UNDECIDED}.", "plain"),
        ([UNCHANGED], f"{SAME_CS}{NOTHING_RETAINED}", "plain"),
        # A better second target does not hide the first.
        (
            [OPEN, replace(BETTER, name="law")],
            f"{NOT_CS}; {BETTER_CS.replace('cs', 'law')}{NOTHING_RETAINED}",
            "plain",
        ),
        ([TO_LOSE], f"{WORSE_CS}{NOTHING_RETAINED}", "bad"),
    ],
)
def test_the_headline_says_no_more_than_the_verdicts(
    datasets: list[DatasetResult], sentence: str, news: str
) -> None:
    result = make_result(*datasets)
    assert plain(headline(result)) == (f"{BETTER_CS}{sentence}" if datasets[0] is BETTER else sentence)
    assert tone(result) == news


ABSOLUTE, SHARE = {"measure": {"margin": 0.02, "margin_absolute": 0.01}}, {"measure": {"margin": 0.02}}
OF_PAIRS = replace(
    HELD, name="physics", changes=[make_change(0.25, 0.25, measure="PND", half_width=0.001)], main="PND"
)
TARGET_OF_PAIRS = replace(OF_PAIRS, role="target")
HELD_GRID = replace(make_grid(["en", "de"]), changes=OF_PAIRS.changes)
GRID = make_grid(["en", "de"])
SEEN = replace(
    make_dataset("seen", "retain", 0.5, 0.6),
    changes=[replace(make_change(0.5, 0.6), verdict="undecided", reasons=[Reason.TRAINED_ON])],
    trained=[TrainedOn("job", 300, 200, 300, 200, 200, is_proof=False)],
)
CHANGE = make_change(0.5, 0.6)
SEEN_PART = Part("seen documents", 196, make_change(0.6, 0.7))


@pytest.mark.parametrize(
    ("part", "clause"),
    [
        (Part("new documents", 104, CHANGE), "got better on queries with new documents: nDCG@10"),
        (Part("residual collection", 90, CHANGE, above=12), "got better on the residual collection, without"),
        (Part("all queries", 200, CHANGE), "got better on all its queries: nDCG@10"),
    ],
)
def test_the_headline_names_the_part_that_decides_and_tables_show_the_others(part: Part, clause: str) -> None:
    result = make_result(replace(BETTER, parts=[part, SEEN_PART], left_out=3))
    assert clause in plain(headline(result))
    assert "cs: 3 queries that a model was trained on were left out." in map(plain, reservations(result))
    for shown in (page(result).text, printed(result, width=120)):
        for told in (part, SEEN_PART):
            assert re.search(rf"{told.name} {told.queries} queries", " ".join(shown.split()))
    assert ("12 with a removed document above" in page(result).text) == (part.above == 12)


def test_worse_parts_are_named_in_the_headline_and_fail() -> None:
    worse = Part("seen documents", 60, make_change(0.6, 0.4))
    target = replace(BETTER, parts=[Part("new documents", 104, BETTER.main_change()), worse])
    result = make_result(target, HELD)
    assert "; cs got worse on queries with seen documents; " in headline(result)
    assert tone(result) == "bad"
    assert result.failing("worse") == ["cs (seen documents)"]


def test_cells_over_several_runs_have_values_and_changes_and_are_undecided_and_that_is_said() -> None:
    (cells,) = GRID.grid
    undecided: list[list[Word]] = [["undecided"] * 2] * 2
    counts = {"improved": 0, "worsened": 0, "not_worse": 0, "improved_z": None, "worsened_z": None}
    unjudged = replace(cells, verdicts=undecided, reasons=[Reason.CELLS_OVER_RUNS], **counts)
    result = make_result(BETTER, replace(HELD_GRID, grid=[unjudged]), runs=["other"])
    told = f"XNLI: {SENTENCES[Reason.CELLS_OVER_RUNS]}"
    assert plain(headline(result)).endswith(f"; not worse by more than 1 % on the retention set; {told}.")
    assert (tone(result), result.failing("undecided")) == ("good", [])
    shown = plain(html_of(result))
    assert told in shown
    assert "Improvement of PND in percent" in shown
    assert "paired: 0 better, 0 worse, 0 not worse, 4 undecided, of 4" in shown
    assert not any(
        "no verdicts" in note
        for one in (make_result(GRID), make_result(BETTER, runs=["other"]))
        for note in reservations(one)
    )


def test_sets_without_any_training_data_are_named_in_one_sentence() -> None:
    apart = TrainedOn("job", 300, 0, 300, 0, 0)
    result = make_result(replace(BETTER, trained=[apart]), replace(HELD, trained=[apart]))
    told = [plain(sentence) for sentence in reservations(result)]
    none = "job was trained or validated on none of the queries and relevant documents."
    assert told == [f"All data sets: {none}"]


ZERO = make_dataset("web", "retain", 0.0, 0.0, measure="PND")
ENDLESS = replace(SAME, changes=[replace(SAME.changes[0], needed=None)])
WORSE_CELL = "; 1 of 4 language pairs of XNLI got worse"
SEEN_IS_OPEN = f"seen is undecided ({SENTENCES[Reason.TRAINED_ON]})"


@pytest.mark.parametrize(
    ("datasets", "settings", "clause", "news"),
    [
        ([BETTER, HELD], ABSOLUTE, "; not worse by more than 0.01 on the retention set.", "good"),
        ([BETTER, HELD, OF_PAIRS], ABSOLUTE, "; not worse by more than 0.01 on both retention sets.", "good"),
        ([BETTER, OF_PAIRS], SHARE, "; not worse by more than 2 % on the retention set.", "good"),
        (
            [TARGET_OF_PAIRS],
            ABSOLUTE,
            "no gain, and a loss of more than 0.01 is excluded: PND 0.250",
            "plain",
        ),
        # Worse cells of a grid that is fine as a whole.
        ([BETTER, HELD_GRID], {}, f"{WORSE_CELL}; {KEPT} the retention set.", "bad"),
        ([replace(HELD_GRID, role="target"), HELD], {}, f"{WORSE_CELL}; not worse by more", "bad"),
        ([BETTER, GRID], {}, "XNLI is undecided (needs about 1,900 premises, has 500).", "bad"),
        # Sets that were trained on count among the retention sets.
        ([BETTER, HELD, HELD, SEEN], {}, f"; {KEPT} 2 of 3 retention sets; {SEEN_IS_OPEN}.", "plain"),
        ([BETTER, HELD, SEEN], {}, f"; {KEPT} 1 of 2 retention sets; {SEEN_IS_OPEN}.", "plain"),
        (
            [BETTER, with_reasons(replace(SAME, units=5), Reason.FEW_UNITS)],
            {},
            f"; maths is undecided ({SENTENCES[Reason.FEW_UNITS]}; needs about 1,900 queries, has 5).",
            "plain",
        ),
        ([BETTER, ZERO], {}, f"; web is undecided ({SENTENCES[Reason.NO_MARGIN]}).", "plain"),
        (
            [BETTER, replace(SAME, units=None)],
            {},
            "; maths is undecided (needs about 1,900 queries).",
            "plain",
        ),
        ([BETTER, ENDLESS], {}, "; maths is undecided.", "plain"),
    ],
)
def test_the_headline_names_margins_cells_and_reasons(
    datasets: list[DatasetResult], settings: dict, clause: str, news: str
) -> None:
    result = make_result(*datasets, settings=settings)
    assert clause in plain(headline(result))
    assert tone(result) == news


ALONE = make_dataset("cs", "target", None, 0.652)
TUNED = "Tuning ran 3 epochs (300 steps) and kept epoch 2; on its validation set: loss 0.09000 → 0.07000, "
KEPT_START = "Tuning did not improve on the start in 3 epochs (300 steps); the starting weights were kept."


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (make_result(ALONE, baseline=None), "cs: nDCG@10 0.652 [0.642, 0.662]. There is no baseline"),
        (make_result(training=make_tuning()), f"{TUNED}errors of 4,000 pairs 2,000 → 1,500."),
        (make_result(training=make_tuning(best_epoch=0)), KEPT_START),
    ],
)
def test_without_a_comparison_the_headline_states_values(result: Result, sentence: str) -> None:
    shown = (evaluation_page if result.datasets else training_page).page(result)
    assert plain(shown.headline).startswith(sentence)
    # What was chosen on a validation set is no proof.
    assert [("held-out data" in line) for line in shown.reservations] == [True] * (
        result.training is not None
    )


def without_percents(name: str, before: float, after: float, measure: str) -> DatasetResult:
    dataset = make_dataset(name, "retain", before, after, measure=measure, half_width=0.05)
    return replace(dataset, changes=[replace(dataset.changes[0], improvement_interval=None)])


BARE = without_percents("law", 0.02, 0.03, "P@1")
# maths: 0.02 * 1.645 / 1.96 - 0.002 = 0.0148, 2.6 % of 0.57; law: 0.05 * 1.645 / 1.96 - 0.01 = 0.0320
ROOM = "the data allow a loss of up to"


WITHOUT = without_percents("web", 0.0, 0.0, "PND")
OTHER_WORSE = replace(SAME, changes=[*SAME.changes, make_change(0.5, 0.4, measure="P@1")])


@pytest.mark.parametrize(
    ("datasets", "sentence"),
    [
        ([BETTER, SAME, HELD], f"{ROOM} 2.6 % (maths, nDCG@10)."),
        ([BETTER, BARE], f"{ROOM} 100.0 % (law, P@1)."),
        (
            [BETTER, SAME, BARE, WITHOUT],
            f"{ROOM} 2.6 % (maths, nDCG@10), 100.0 % (law, P@1), 0.0420 (web, PND).",
        ),
        ([OTHER_WORSE], "maths other measures got worse: P@1 by cosine (−20.0 % [−24.0, −16.0])."),
    ],
)
def test_reservations_name_what_the_headline_leaves_out(datasets: list[DatasetResult], sentence: str) -> None:
    assert [line for line in map(plain, reservations(make_result(*datasets))) if line.endswith(sentence)]


def with_losses(dataset: DatasetResult, **fields) -> DatasetResult:
    return replace(dataset, changes=[replace(dataset.changes[0], **fields)])


def test_the_loss_by_spread_stands_beside_the_cautious_bound() -> None:
    """0.0057 of 0.57 are one percent."""
    both = with_losses(SAME, loss_bound=0.0171, loss_by_spread=0.00456)
    result = make_result(BETTER, both)
    (line,) = [line for line in map(plain, reservations(result)) if ROOM in line]
    assert f"{ROOM} 3.0 % (maths, nDCG@10; 0.8 % judging by these queries alone)." in line
    assert "too rare" in line
    assert "3.0 % by spread: 0.8 %" in page(result).text
    # Where both are one figure, there is nothing to explain.
    equal = with_losses(SAME, loss_bound=0.0171, loss_by_spread=0.0171)
    (line,) = [line for line in map(plain, reservations(make_result(BETTER, equal))) if ROOM in line]
    assert line.endswith(f"{ROOM} 3.0 % (maths, nDCG@10).")


def test_a_set_on_which_no_query_moved_says_its_bound() -> None:
    still = with_losses(HELD, gained=0, lost=0, loss_bound=0.003, verdict="not worse")
    result = make_result(BETTER, replace(still, unlabelled=5000))
    size = plain(f"{100 * 0.003 / still.changes[0].before:.1f} %")
    assert [
        line
        for line in map(plain, reservations(result))
        if "no query gained or lost" in line and size in line
    ]
    assert [line for line in map(plain, reservations(result)) if "5,000 queries without judgements" in line]
    moved = with_losses(still, lost=1)
    assert not [line for line in reservations(make_result(BETTER, moved)) if "no query gained" in line]


def page(result: Result) -> Page:
    return Page(html_of(result))


def test_an_evaluation_without_a_baseline_shows_values_alone() -> None:
    shown = page(make_result(ALONE, make_grid(["en", "de"], compared=False), baseline=None))
    assert "What was measured" in shown.text
    assert "0.6520 [0.6420, 0.6620]" in shown.text
    assert shown.with_class("badge") == shown.tags("svg") == []
    assert not {"training", "layers", "settings", "examples"} & set(shown.ids())


@pytest.mark.parametrize("retained", [0, 3])
def test_each_data_set_has_a_row_and_a_badge(retained: int) -> None:
    others = [replace(WORSE, name=f"retained {number}") for number in range(retained)]
    shown = page(make_result(BETTER, *others))
    badges = [word for badge in shown.with_class("badge") for word in (badge["class"] or "").split()]
    # Once in the main table, once among all measures.
    assert (badges.count("better"), badges.count("worse")) == (2, 2 * retained)


def test_z_stands_among_all_measures_and_not_beside_the_main_one() -> None:
    dataset = make_dataset("cs", "target", 0.5, 0.4, measure="PND")
    pooled = make_change(0.5, 0.4, measure="PND pooled", z=-3.214)
    shown = page(make_result(replace(dataset, changes=[*dataset.changes, pooled])))
    assert not [cell for cell in shown.tags("td") if cell.get("data-label") == "z"]
    assert shown.text.count("−3.21") == 1


@pytest.mark.parametrize(("side", "size"), [(1, "large"), (8, "medium"), (15, "heat")])
def test_grids_of_any_size_state_both_counts_mark_cells_and_use_the_room(side: int, size: str) -> None:
    shown = page(make_result(make_grid([f"l{number}" for number in range(side)])))
    worse = int(side > 1)
    assert (
        f"paired: 1 better, {worse} worse, 0 not worse, {side**2 - 1 - worse} undecided, "
        f"of {side**2} z-test: 7 better, {worse} worse" in shown.text
    )
    assert shown.text.count("•") == 1 + worse
    assert "+6.2" in shown.text
    assert [(table["class"] or "").split()[-1] for table in shown.with_class("heat")] == [size]


def test_examples_say_in_words_what_moved_and_what_is_relevant() -> None:
    shown = page(make_result(BETTER, examples=[make_example()]))
    assert "first relevant: rank 3 → rank 1" in shown.text
    for words in ("↑ from 3", "↓ from 1", "+ moved in", "× moved out", "→ now 2", "→ now 1"):
        assert shown.text.count(words) == 1, words
    assert len(shown.with_class("relevant")) == 2
    hits = [Hit(f"d{rank}", "", 1.0 / rank, rank == 9) for rank in range(1, 11)]
    long = replace(make_example("word " * 20_000), before=hits, after=hits[::-1])
    shown = page(make_result(BETTER, examples=[long]))
    assert "first relevant: rank 9 → rank 2" in shown.text
    assert "cut from 100,000 characters" in shown.text
    # d6 is sixth before and fifth after: irrelevant hits further down are not shown.
    assert shown.text.count(" d6") == shown.text.count(" d5") == 1


def test_of_many_examples_and_layers_the_first_are_shown_and_the_rest_counted() -> None:
    shown = page(full_result())
    assert len(shown.with_class("example")) == EXAMPLES_SHOWN
    assert "10 of 12 queries in result.json" in shown.text
    assert "1 tensor had only zeros before" in shown.text
    tables = shown.text.split("By relative change")[1]
    by_relative, by_largest = tables.split("By change of the largest weight")
    assert by_relative.index("layer.19.weight") < by_relative.index("layer.18.weight")
    assert by_largest.index("layer.0.weight") < by_largest.index("layer.1.weight")
    assert by_relative.count("encoder.layer") == by_largest.count("encoder.layer") == 15


def test_settings_stand_under_dotted_keys_beside_seed_versions_and_command() -> None:
    inputs = {"target": {"data": "cs.jsonl", "store": "stores/cs", "store_sha256": "ab12"}}
    shown = page(replace(full_result(), settings={"measure": {"depth": 77}}, inputs=inputs))
    trained = ("schedule.kind constant", "learning_rate 5e-08", 'freeze ["embeddings"]', "measure.depth 77")
    made = ("seed 7", "adiabat 0.1.0", "adiabat evaluate job store")
    assert shown.lacks(*trained, *made, "target.data cs.jsonl", "target.store_sha256 ab12") == []


def test_notes_stand_once_behind_the_names_that_they_are_about() -> None:
    sets = [
        replace(SAME, name=name, notes=notes)
        for name, notes in (("a", ["x", "y"]), ("b", ["y", "x"]), ("c", ["y"]))
    ]
    overlap = "5 of 5 validation queries are also trained on"
    shown = page(make_result(*sets, training=replace(make_tuning(), notes=(overlap,))))
    assert shown.lacks("Notes a, b: x all data sets: y", f"note {overlap}") == []


GAINED = r"cs +nDCG@10 +0\.6120 +0\.6610 +\+8\.0 % \[\+4\.7, \+11\.3\] +▲ better"


@pytest.mark.parametrize(
    ("result", "row", "begins"),
    [
        (make_result(BETTER, make_grid(["en"])), GAINED, "The target cs got"),
        (
            make_result(ALONE, baseline=None),
            r"cs +nDCG@10 +0\.6520 \[0\.6420, 0\.6620\]",
            "cs: nDCG@10 0.652",
        ),
        (make_result(training=make_tuning()), r"errors of 4,000 pairs +2,000 +1,500", "Tuning ran 3 epochs"),
    ],
)
def test_the_terminal_has_a_row_for_each_data_set_or_validation_figure_and_fits_80_columns(
    result: Result, row: str, begins: str
) -> None:
    text = printed(result)
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(row, text)
    assert begins in text


def test_the_margin_of_a_former_record_is_its_text() -> None:
    assert margin_of({"measure": {"margin": "1 %"}}) == "1 %"
    assert plain(margin_of({})) == plain(margin_of({"measure": {"margin": 0.01}})) == "1 %"
