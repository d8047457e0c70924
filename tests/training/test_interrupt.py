"""Signals between steps."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from adiabat.training.limits import Interruption


@pytest.fixture(autouse=True)
def _ordinary_handlers() -> Iterator[None]:
    """Python's own, whatever the process was started with."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted(number: signal.Signals) -> None:
    with Interruption() as interruption:
        assert not interruption.requested
        send(number)
        assert interruption.requested


def test_a_second_ctrl_c_acts_at_once() -> None:
    with Interruption() as interruption:
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        assert interruption.requested


def test_a_second_signal_of_the_other_kind_acts_at_once_too() -> None:
    acted: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: acted.append(number))
    with Interruption():
        send(signal.SIGINT)
        assert acted == []
        send(signal.SIGTERM)
        assert acted == [signal.SIGTERM]


@pytest.mark.parametrize("noted", [False, True])
def test_handlers_are_afterwards_as_they_were(noted: bool) -> None:
    def own(number: int, frame: object) -> None:
        raise AssertionError("must not be called")

    signal.signal(signal.SIGTERM, own)
    with Interruption():
        assert signal.getsignal(signal.SIGTERM) is not own
        if noted:
            send(signal.SIGINT)
            assert signal.getsignal(signal.SIGTERM) is own
    assert signal.getsignal(signal.SIGTERM) is own
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_come_back_after_an_error_too() -> None:
    with pytest.raises(RuntimeError, match="broken"), Interruption():
        raise RuntimeError("broken")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_the_process_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interruption() as interruption:
        send(signal.SIGINT)
        assert not interruption.requested
        send(signal.SIGTERM)
        assert interruption.requested


def test_outside_the_main_thread_nothing_is_changed() -> None:
    seen: list[object] = []

    def enter() -> None:
        with Interruption() as interruption:
            seen.append(signal.getsignal(signal.SIGINT))
            seen.append(interruption.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler, False]
