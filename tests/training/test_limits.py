"""What a validation counts for, and signals between steps."""

import math
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from adiabat.runs.run_log import Validation
from adiabat.training.checkpoint import Interruption, Position


@pytest.mark.parametrize(
    ("keep", "loss", "errors", "better"),
    [
        *(
            ("both", loss, errors, (loss, errors) == (0.9, 9))
            for loss in (0.9, 1.0, 1.1, math.nan)
            for errors in (9, 10, 11)
        ),
        *(
            ("loss", loss, errors, loss == 0.9)
            for loss in (0.9, 1.0, 1.1, math.nan)
            for errors in (9, 10, 11)
        ),
        *(("last", loss, 11, True) for loss in (0.9, 1.1, math.nan)),
    ],
)
def test_an_epoch_counts_by_both_signals_by_the_loss_or_always(
    keep: str, loss: float, errors: int, better: bool
) -> None:
    assert Validation(loss, errors, 100).improves_on(Validation(1.0, 10, 100), keep=keep) is better


def test_a_position_comes_back_from_its_record() -> None:
    position = Position(step=7, epoch=2, best=Validation(0.5, 3, 10, {"RR": 0.8}))
    assert Position.from_record(asdict(position)) == position


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
def test_the_first_signal_is_noted_and_a_second_ctrl_c_acts_at_once(number: signal.Signals) -> None:
    with Interruption() as interruption:
        assert not interruption.requested
        send(number)
        assert interruption.requested
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        assert interruption.requested


@pytest.mark.parametrize("noted", [False, True])
def test_handlers_are_afterwards_as_they_were_and_come_back_with_the_first_signal(noted: bool) -> None:
    acted: list[int] = []

    def own(number: int, frame: object) -> None:
        acted.append(number)

    def interrupted() -> None:
        with Interruption():
            assert signal.getsignal(signal.SIGTERM) is not own
            if noted:
                send(signal.SIGINT)
                send(signal.SIGTERM)
            raise RuntimeError("broken")

    signal.signal(signal.SIGTERM, own)
    with pytest.raises(RuntimeError, match="broken"):
        interrupted()
    assert acted == [signal.SIGTERM] * noted
    assert signal.getsignal(signal.SIGTERM) is own
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
            seen.extend((signal.getsignal(signal.SIGINT), interruption.requested))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler, False]
