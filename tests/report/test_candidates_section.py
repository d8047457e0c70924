"""The section on the candidates of a tuning run, and what its page says of the chosen one."""

from dataclasses import replace

import pytest

from adiabat.report.candidates_section import candidates_of
from adiabat.report.pages import Figure
from adiabat.report.tables import Table
from adiabat.report.training_page import training_sentence
from adiabat.results.training_record import Candidate, CandidateFigure, TrainingRecord
from tests.report.sample_results import make_tuning


def candidate(share: float, pull: float | None = None, *, kept: bool = False) -> Candidate:
    """A candidate that gains 4 % of 0.5 at the whole share, and loses half of that elsewhere."""
    figures = (
        CandidateFigure("target", 200, 0.5, 0.02 * share, 0.01 * share, is_retained=True),
        CandidateFigure("other", 250, 0.8, -0.008 * share, -0.012 * share, is_retained=share < 0.8),
    )
    return Candidate(share, pull, figures, kept=kept)


CANDIDATES = (candidate(1.0), candidate(0.5, kept=True), candidate(1.0, 0.3))


def test_the_table_has_each_candidate_with_the_ends_that_decide() -> None:
    found = candidates_of(CANDIDATES)
    assert found is not None
    drawn, table = found.sections
    assert isinstance(drawn, Figure)
    assert isinstance(table, Table)
    assert [column.head for column in table.columns] == ["candidate", "target", "other", "kept"]
    first, kept, mapped = (row.cells for row in table.rows)
    assert (first[1].text, first[1].sub) == ("+4.0\N{NO-BREAK SPACE}%", ["at least +2.0\N{NO-BREAK SPACE}%"])
    # 0.8 % of 0.8 is 1 %, and the end that decides 1.5 %.
    assert (first[2].text.replace("\N{MINUS SIGN}", "-"), first[2].tone) == ("-1.0\N{NO-BREAK SPACE}%", "bad")
    assert (kept[2].tone, kept[3].text) == ("", "kept")
    assert "0.3" in mapped[0].text
    assert candidates_of(()) is None


def test_candidates_without_a_share_have_no_curve() -> None:
    found = candidates_of((candidate(0.0, 0.1),))
    assert found is not None
    assert not any(isinstance(section, Figure) for section in found.sections)


@pytest.mark.parametrize(
    ("candidates", "told"),
    [
        (CANDIDATES, "chose 50% of the change: nDCG@10 of its validation queries +2.0"),
        ((candidate(1.0),), "did not improve on the start"),
        ((), "kept epoch"),
    ],
)
def test_the_headline_of_a_run_names_what_was_chosen(candidates: tuple[Candidate, ...], told: str) -> None:
    record: TrainingRecord = replace(make_tuning(), candidates=candidates)
    assert told in training_sentence(record)
    assert record.shown == (None if not candidates else pytest.approx(2.0 if record.chosen else 0.0))
