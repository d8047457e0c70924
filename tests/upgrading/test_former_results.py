"""Results of format 5 and before, whose verdicts had no reasons: other fields implied them."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.core.errors import DataError
from adiabat.core.files import sealed_json
from adiabat.results.evaluation_result import Result
from adiabat.results.record import RECORD_FILE, read_result
from adiabat.results.suite_result import SuiteResult
from adiabat.results.verdict import Reason
from adiabat.upgrading.former_results import present_record
from tests.report.sample_results import make_dataset, make_result
from tests.report.sample_suites import make_suite

PATH = Path("result.json")


def former(plain: Any) -> Any:
    """A record as format 5 had it."""
    if isinstance(plain, dict):
        return {name: former(value) for name, value in plain.items() if name != "reasons"}
    return [former(value) for value in plain] if isinstance(plain, list) else plain


def evaluated(role: str, verdict: str | None, **dataset: Any) -> dict[str, Any]:
    plain = former(make_result(make_dataset("cs", role, 0.5, 0.6)).to_json()) | {"format": 5}
    plain["datasets"][0]["changes"][0]["verdict"] = verdict
    plain["datasets"][0] |= dataset
    return plain


TRAINED = {
    "model": "job",
    "queries": 300,
    "trained_queries": 0,
    "relevant": 300,
    "trained_relevant": 0,
    "answered": 0,
}


@pytest.mark.parametrize(
    ("role", "verdict", "dataset", "present"),
    [
        ("target", "better", {}, ("better", [])),
        ("target", "worse", {"doubt": "worse on 6 queries"}, ("worse", [Reason.FEW_UNITS])),
        ("target", "worse", {"doubt": "verdicts too sure"}, ("worse", [Reason.FEW_CLUSTERS])),
        ("target", "undecided", {}, ("undecided", [Reason.LOSS_POSSIBLE])),
        ("target", None, {"trained": [TRAINED | {"is_proof": False}]}, ("undecided", [Reason.TRAINED_ON])),
        (
            "target",
            "better",
            {"trained": [TRAINED | {"unknown": "lost"}]},
            ("better", [Reason.TRAINING_UNKNOWN]),
        ),
        ("target", "better", {"trained": [TRAINED]}, ("better", [])),
        ("retain", "better", {}, ("better", [])),
    ],
)
def test_a_former_evaluation_gets_the_reasons_that_it_implied(
    role: str, verdict: str | None, dataset: dict[str, Any], present: tuple[str, list[Reason]]
) -> None:
    record = present_record(evaluated(role, verdict, **dataset), PATH)
    assert isinstance(record, Result)
    change = record.datasets[0].main_change()
    assert (change.verdict, change.reasons) == present


def test_a_former_suite_has_the_verdicts_after_its_correction() -> None:
    suite = make_suite({"x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.5, "b": 0.6}}, baseline="b")
    plain = former(suite.to_json()) | {"format": 5}
    for pairing in plain["pairings"]:
        pairing["significant"] = False
    record = present_record(plain, PATH)
    assert isinstance(record, SuiteResult)
    judged = {pairing.task: (pairing.verdict, pairing.change.reasons) for pairing in record.pairings}
    assert judged["x"] == ("not worse", [Reason.MANY_COMPARISONS])
    assert judged["y"] == ("undecided", [Reason.MANY_COMPARISONS, Reason.LOSS_POSSIBLE])


def test_a_former_result_with_verdicts_is_not_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / RECORD_FILE).write_text(sealed_json(evaluated("target", "better")))
    with pytest.raises(DataError, match=r"result\.json has verdicts without reasons.*adiabat\.upgrade\("):
        read_result(tmp_path / RECORD_FILE)
