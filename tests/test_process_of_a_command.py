"""A command from the start of its process to the end: its clock, and the collection of garbage."""

import gc
import sys
import time
from pathlib import Path

import pytest

from adiabat.cli.app import ALLOCATIONS, main
from adiabat.core.wording import call_began
from tests.commands import write_world


def test_garbage_is_collected_rarely_and_not_at_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


class ReachedError(Exception):
    """The work of a verb was reached; its time limit counts from the argument."""


@pytest.mark.parametrize(
    ("work", "command"),
    [
        ("adiabat.adiabatic.tune.begin", "tune demo store pairs.jsonl --out job --set tune.evidence=off"),
        ("adiabat.adiabatic.tuning_estimate.estimate", "tune demo store pairs.jsonl --dry-run"),
        ("adiabat.dual_encoder.train.train", "train run.toml --out job"),
        ("adiabat.dual_encoder.train.estimate", "train run.toml --dry-run"),
        (
            "adiabat.distillation.student.teach",
            "distill fit --teacher demo --student demo --out job --texts corpus.jsonl",
        ),
        (
            "adiabat.distillation.student.teach",
            "distill multilingual --teacher demo --student demo --out job --parallel two.tsv",
        ),
    ],
)
def test_every_time_limit_counts_from_the_start_of_the_process(
    work: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_world(tmp_path)
    (tmp_path / "run.toml").write_text(
        'job = {model = "demo", data = "pairs.jsonl"}\ntrain = {budget_seconds = 60}\n'
    )
    (tmp_path / "two.tsv").write_text("source\ttarget\nhello\thola\n")
    monkeypatch.chdir(tmp_path)

    def reached(*_: object, started: float, **__: object) -> None:
        raise ReachedError(started)

    monkeypatch.setattr(work, reached)
    monkeypatch.setattr(sys, "argv", ["adiabat", *command.split()])
    monkeypatch.setenv("ADIABAT_DEBUG", "1")
    with pytest.raises(ReachedError, match=r"^3\.0$"):
        main(began=3.0)
