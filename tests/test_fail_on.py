"""`adiabat evaluate --fail-on`: exit code 3 with the data sets that are worse or undecided, after the result
is written.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

import adiabat
from adiabat.core.text import NO_BREAK
from adiabat.evaluation.verdicts import SetSize, notes_on_sizes, require_answerable
from adiabat.models import backend_choice
from adiabat.models.loading import load
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import DatasetResult, Result
from adiabat.results.record import read_result
from adiabat.results.verdict import Reason
from tests.commands import Run, assert_refused, evaluate, lines, other_pairs, own_world, setting
from tests.commands import here as here
from tests.commands import run as run
from tests.report.sample_results import make_dataset, make_grid, make_result, with_reasons
from tests.tiny import tiny_encoder

world = own_world

BETTER = make_dataset("cs", "target", 0.5, 0.6)
HELD = make_dataset("law", "retain", 0.5, 0.5, half_width=0.004)
UNDECIDED = make_dataset("maths", "retain", 0.57, 0.572)
WORSE = make_dataset("physics", "retain", 0.50, 0.45)
CELLS = make_grid(["en", "de"])


@pytest.mark.parametrize(
    ("datasets", "worse", "undecided"),
    [
        ([BETTER, HELD], [], []),
        ([BETTER, HELD, UNDECIDED], [], ["maths"]),
        ([BETTER, WORSE, UNDECIDED], ["physics"], ["physics", "maths"]),
        # One of four pairs of languages is worse, whatever the mean over them.
        ([BETTER, CELLS], ["XNLI (1 of 4 language pairs)"], ["XNLI"]),
        ([with_reasons(BETTER, Reason.FEW_UNITS), HELD], [], ["cs (better, but very few units)"]),
        (
            [replace(CELLS, changes=HELD.changes, main="nDCG@10")],
            ["XNLI (1 of 4 language pairs)"],
            ["XNLI (1 of 4 language pairs)"],
        ),
    ],
)
def test_what_fails_is_worse_or_undecided(
    datasets: list[DatasetResult], worse: list[str], undecided: list[str]
) -> None:
    result = make_result(*datasets)
    assert (result.failing("worse"), result.failing("undecided")) == (worse, undecided)


def test_a_failing_evaluation_is_written_and_ends_with_code_3(here: Path, run: Run) -> None:
    lines(here / "other.jsonl", other_pairs("other", 12))
    # Of another query tower that is no better and no worse, as far as 20 queries tell.
    model = load(Path("model"))
    save(
        DualEncoder(tiny_encoder(seed=3, settings=model.query.settings), model.document, "apart"),
        Path("apart"),
    )
    arguments = evaluate("pairs.jsonl", "--baseline", "apart", "--retain", "store", "other.jsonl")
    said = run(*arguments, "--fail-on", "undecided")
    assert said.code == 3
    assert said.err.splitlines()[-1] == "adiabat: --fail-on undecided: pairs, other"
    result = read_result(here / "new" / "result.json", Result)
    assert [dataset.main_change().verdict for dataset in result.datasets] == ["undecided", "undecided"]
    assert run(*arguments, "--fail-on", "worse").code == 0


@pytest.mark.parametrize("margin", ["0.9", "41"])
def test_a_margin_above_all_that_a_measure_can_lose_is_refused(here: Path, run: Run, margin: str) -> None:
    refused = run(
        *evaluate("pairs.jsonl", "--baseline", "model"), *setting(f"measure.margin_absolute={margin}")
    )
    told = "measure.margin_absolute must be below all that PND can lose on pairs, 0.6"
    assert_refused(refused, told, f"got {margin}; ")
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    ("queries", "fail_on", "facts"),
    [
        (5, "worse", "--fail-on worse must be asked of a set of at least 6 queries, few has 5 queries"),
        (
            9,
            "undecided",
            "--fail-on undecided must be asked of sets of at least 10 queries, few has 9 queries",
        ),
        (9, "worse", "few has 9 queries, and fewer than 10 exclude no loss"),
        (10, "undecided", ""),
    ],
)
def test_sets_too_small_for_an_answer_are_told_before_models_are_loaded(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch, queries: int, fail_on: str, facts: str
) -> None:
    lines(here / "few.jsonl", other_pairs("other", queries))
    monkeypatch.setattr(backend_choice, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    said = run(*evaluate("few.jsonl", "--baseline", "model"), "--fail-on", fail_on)
    told = said.err.replace(NO_BREAK, " ")
    assert facts in told
    assert ("a model was loaded" in told) == ("must" not in facts)
    assert facts or "fewer" not in told
    assert not (here / "new").exists()


def test_one_set_of_several_that_may_be_worse_is_enough() -> None:
    small, large, grid = SetSize("few", 5, False), SetSize("law", 6, False), SetSize("XNLI", 4, True)
    for others in ([large], [grid]):
        require_answerable([small, *others], "worse")
    assert [note.replace(NO_BREAK, " ") for note in notes_on_sizes([small, large, grid])] == [
        "few has 5 queries, and fewer than 6 show no change",
        "law has 6 queries, and fewer than 10 exclude no loss",
        "XNLI has 4 sentence pairs, and fewer than 10 exclude no loss",
    ]
    with pytest.raises(
        adiabat.AdiabatError, match="undecided.* must be asked of sets of at least 10 queries, few has"
    ):
        require_answerable([large._replace(units=10), small], "undecided")


@pytest.mark.parametrize("margin", ["0.01 nDCG", "1 %", "0.01e"])
def test_a_margin_that_is_a_text_is_refused_with_the_settings_that_take_its_place(
    here: Path, run: Run, margin: str
) -> None:
    suite = {"tasks": [{"kind": "retrieval", "data": "pairs.jsonl", "corpus": "corpus.jsonl"}]}
    (here / "suite.toml").write_text(tomli_w.dumps(suite))
    for arguments in (
        evaluate("pairs.jsonl", "--baseline", "model"),
        ("evaluate model --suite suite.toml --out new",),
    ):
        said = run(*arguments, *setting(f"measure.margin={margin}"))
        told = "measure.margin must be a share of the baseline such as 0.01"
        assert_refused(said, told, "measure.margin_absolute", f"got {margin!r}")
        assert not (here / "new").exists()
    with pytest.raises(adiabat.AdiabatError, match=r"measure.margin_absolute, got '0.01 nDCG'"):
        adiabat.compare("first", "second", margin="0.01 nDCG")
