"""Weights and numbers of tiny jobs are those of the golden file; and what the script that compares them
notices.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from scripts import golden

FILE = Path(__file__).with_name("golden.json")


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    """The golden file."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def faults(before: golden.Entry, after: golden.Entry, *, exact: bool = True) -> list[str]:
    return list(golden.differences(before, after, exact=exact))


def test_quick_jobs_give_the_weights_and_numbers_of_the_golden_file_resumed_or_not(
    stored: dict[str, Any], tmp_path: Path
) -> None:
    reported = golden.check(stored, ("tune", "train", "distill-static"), tmp_path, exact=False)
    assert [fault for fault in reported if "note: " not in fault] == []


def test_every_job_of_the_script_is_in_the_file(stored: dict[str, Any]) -> None:
    assert list(stored["jobs"]) == list(golden.JOBS)


@pytest.mark.parametrize("exact", [True, False])
def test_a_changed_number_and_a_lost_one_are_faults_and_a_renamed_key_is_not(
    stored: dict[str, Any], exact: bool
) -> None:
    before = stored["jobs"]["suite"]
    assert faults(before, before, exact=exact) == []
    changed, renamed, lost = copy.deepcopy(before), copy.deepcopy(before), copy.deepcopy(before)
    changed["numbers"]["scores.value"][3] *= 1.1
    assert [fault.split(",")[0] for fault in faults(before, changed, exact=exact)] == [
        "1 of 55 numbers under scores.value changed"
    ]
    renamed["numbers"]["results.value"] = renamed["numbers"].pop("scores.value")[::-1]
    (note,) = faults(before, renamed, exact=exact)
    assert note == "note: 0 numbers lost (none), 0 new (none), 55 under other keys"
    number = lost["numbers"]["scores.value"].pop(0)
    assert any(f"scores.value = {number!r}" in fault for fault in faults(before, lost, exact=exact))


def test_changed_weights_are_faults_and_other_machines_get_a_tolerance(stored: dict[str, Any]) -> None:
    before = stored["jobs"]["tune"]
    other = copy.deepcopy(before)
    weights = next(iter(other["weights"].values()))
    weights["sha256"] = "0"
    assert len(faults(before, other)) == 1
    assert faults(before, other, exact=False) == []
    max(weights["sums"], key=lambda sums: sums[1])[1] *= 1.1
    assert faults(before, other, exact=False) == ["weights changed by more than 1 %"]
