"""A command from the start of its process to the end: its clock, and the collection of garbage."""

import gc
import sys
import time

import pytest

from adiabat.cli.app import ALLOCATIONS, main
from adiabat.core.wording import call_began


def test_garbage_is_collected_rarely_and_not_at_the_end_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    at_the_end = list[object]()
    monkeypatch.setattr("adiabat.cli.app.atexit.register", at_the_end.append)
    monkeypatch.setattr(sys, "argv", ["adiabat", "--version"])
    before = gc.get_threshold()
    try:
        main()
        assert (gc.get_threshold()[0], gc.get_threshold()[1:]) == (ALLOCATIONS, before[1:])
    finally:
        gc.set_threshold(*before)
    assert gc.freeze in at_the_end


def test_a_command_began_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    began = list[float]()
    monkeypatch.setattr("adiabat.cli.app.app_of", lambda _: lambda **_: began.append(call_began()))
    monkeypatch.setattr("adiabat.cli.app.release_stdout", lambda: None)
    monkeypatch.setattr(sys, "argv", ["adiabat", "tune"])
    now = time.monotonic()
    main()
    main(began=3.0)
    assert began[1] == 3.0
    # Until now the process has computed at most as long as it ran.
    assert began[0] == pytest.approx(now - time.process_time(), abs=1)
