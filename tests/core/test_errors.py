"""Faults are counted, and only the first ten quoted; what goes from process to process arrives whole."""

import pickle

from adiabat.core.errors import DivergedError, Faults, several


def test_faults_are_told_as_if_all_had_been_kept() -> None:
    every = [f"d{number}" for number in range(23)]
    faults = Faults()
    faults.extend(every[:1])
    assert faults.told("ids") == "d0"
    faults = Faults()
    for start in range(0, 23, 4):
        faults.extend(every[start : start + 4])
    assert faults.count == 23
    assert faults.told("ids") == several(every, of="ids")
    assert faults.told("ids").startswith("23 ids: d0; d1; ")
    assert faults.told("ids").endswith("; d9; and 13 more")


def test_a_run_that_diverged_says_what_was_found_and_what_to_do_in_another_process_too() -> None:
    fault = pickle.loads(pickle.dumps(DivergedError("the loss is nan", "lower the rate")))
    assert (str(fault), fault.what) == ("the loss is nan; lower the rate", "the loss is nan")
