"""Messages speak flags on the command line and keywords in Python."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adiabat.core.wording import (
    again,
    assignment,
    call_began,
    call_of,
    option,
    positional,
    typed,
    typed_command,
    written,
)


@pytest.mark.parametrize(
    ("word", "python", "command_line"),
    [
        (lambda: option("out"), "out", "--out"),
        (lambda: option("out", Path("my job")), 'out="my job"', "--out 'my job'"),
        (lambda: option("resume", True), "resume=True", "--resume"),
        (lambda: option("runs"), "runs", "--run"),
        (lambda: option("evidence", "told"), 'evidence="told"', "--anyway"),
        (lambda: option("budget", 1e17), "budget=1e17", "--budget 1e17"),
        (lambda: option("baseline_stores", "s"), 'baseline_stores="s"', "--baseline-store s"),
        (lambda: positional("store"), "store", "STORE"),
        (
            lambda: assignment("tune.keep", "last"),
            'settings={"tune": {"keep": "last"}}',
            "--set tune.keep=last",
        ),
        (lambda: assignment("job.model", ...), 'settings={"job": {"model": ...}}', "--set job.model=..."),
        (lambda: call_of("safe-rate"), "adiabat.safe_rate", "adiabat safe-rate"),
        (
            lambda: call_of("embed", written("a b"), positional("corpus"), out="s"),
            'adiabat.embed("a b", corpus, out="s")',
            "adiabat embed 'a b' CORPUS --out s",
        ),
        (again, "make the same call again", "run the same command again"),
        (
            lambda: again(resume=True),
            "make the same call with resume=True",
            "run the same command with --resume",
        ),
        (lambda: written('say "hi"'), "'say \"hi\"'", "'say \"hi\"'"),
    ],
)
def test_a_word_is_written_as_the_door_does(word, python: str, command_line: str) -> None:
    assert word() == python
    with typed("adiabat tune"):
        assert word() == command_line
    assert word() == python


def test_a_call_began_with_its_command_or_else_begins_now() -> None:
    before = time.monotonic()
    with typed("adiabat tune", began=before - 7):
        assert call_began() == before - 7
        with typed("adiabat tune"):
            assert call_began() >= before
    assert call_began() >= before


def test_threads_of_a_command_speak_its_words() -> None:
    with typed("adiabat tune a b c"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(option, "out").result() == "--out"
        assert typed_command() == "adiabat tune a b c"
    assert typed_command() is None
