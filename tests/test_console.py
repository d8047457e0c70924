"""What people see: a bar at a terminal, a line now and then in a log, one line for whatever went wrong."""

import io
import warnings
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

import adiabat
from adiabat.api.call import SECONDS_PER_LINE, Lines, OneBar, say, shown_progress
from adiabat.cli.options import complain, plain_warnings
from adiabat.core.progress import Watch
from tests.commands import write_world


def plain(width: int = 80) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=width, highlight=False), stream


def test_where_there_is_no_terminal_only_notes_are_written() -> None:
    console, stream = plain()
    with shown_progress(console) as watch:
        watch.progress("encoding", 1, 10)
        watch.note("read [bold]7[/bold] rows")
    assert stream.getvalue() == "read [bold]7[/bold] rows\n"


def test_a_note_is_one_line_however_long() -> None:
    console, stream = plain(width=20)
    say("word " * 50, console)
    assert stream.getvalue() == ("word " * 50).strip() + "\n"


def test_words_between_colons_are_no_emoji_in_notes_or_labels() -> None:
    console, stream = plain()
    say("reading data/x:100:y", console)
    assert stream.getvalue() == "reading data/x:100:y\n"
    stream = io.StringIO()
    with shown_progress(
        Console(file=stream, force_terminal=True, force_interactive=True, width=120)
    ) as watch:
        watch.progress("reading data/x:100:y [bold]z[/bold]", 3, 9)
    assert "reading data/x:100:y [bold]z[/bold]" in stream.getvalue()


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    assert SECONDS_PER_LINE == 30
    console, stream = plain()
    clock = iter([0.0, SECONDS_PER_LINE - 1, SECONDS_PER_LINE, SECONDS_PER_LINE + 1, 2 * SECONDS_PER_LINE])
    lines = Lines(console, clock=lambda: next(clock))
    for done in range(1, 5):
        lines("encoding", done * 1000, 4000)
    assert stream.getvalue() == "encoding: 2,000 of 4,000, 2.0 s left\nencoding: 4,000 of 4,000\n"


def test_the_time_left_is_that_of_all_epochs_at_the_mean_speed_since_the_start_of_this_process() -> None:
    console, stream = plain()
    clock = iter([0.0, 10.0, 70.0, 130.0])
    lines = Lines(console, clock=lambda: next(clock))
    # A resumed run begins at step 500; the total grows with an improvement.
    lines("epoch 6 of at least 12 (best: epoch 3, 5 errors)", 500, 1200)
    lines("epoch 7 of at least 12 (best: epoch 3, 5 errors)", 600, 1200)
    lines("epoch 8 of at least 17 (best: epoch 7, 5 errors)", 700, 1700)
    assert [line.rpartition(", ")[2] for line in stream.getvalue().splitlines()] == [
        "6 min 0 s left",
        "10 min 0 s left",
    ]


def test_at_a_terminal_there_is_a_bar_that_is_gone_at_the_end() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, force_interactive=True, width=80)
    with shown_progress(console) as watch:
        watch.progress("encoding documents", 3, 9)
        watch.note("a note")
    written = stream.getvalue()
    assert "encoding documents" in written
    assert "3/9" in written
    assert "a note" in written
    # The last thing is the erasing of the bar's line.
    assert written.rstrip("\r").endswith("\x1b[2K")


def test_one_bar_at_a_time_and_epochs_share_theirs() -> None:
    console, _ = plain()
    bar = Progress(console=console)
    show = OneBar(bar)
    show("epoch 1 (idle 0/3)", 5, 10)
    first = bar.tasks[0].id
    show("epoch 2 (idle [0/3])", 1, 10)
    assert [(task.id, task.completed, task.description) for task in bar.tasks] == [
        (first, 1, "epoch 2 (idle [0/3])")
    ]
    show("ranking a", 7, 7)
    show("ranking b", 1, 20)
    assert [(task.description, task.completed, task.total) for task in bar.tasks] == [("ranking b", 1, 20)]


def test_a_complaint_is_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    complain("first\nsecond\x1b[2Jthird\x00 שלום 👩‍👧")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "adiabat: first second�[2Jthird� שלום 👩‍👧\n"


def test_warnings_are_shown_without_the_place_in_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_warnings():
        warnings.simplefilter("always")
        warnings.warn("3 queries\nare left out", stacklevel=1)
    assert capsys.readouterr().err == "warning: 3 queries are left out\n"
    with pytest.warns(UserWarning, match="as before"):
        warnings.warn("as before", stacklevel=1)


def test_a_message_of_any_length_is_cut_in_its_middle_and_keeps_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    complain(f"{'x' * 200_000} must be shorter; cut it")
    said = capsys.readouterr().err
    assert len(said) < 5_000
    assert said.startswith("adiabat: xxx")
    assert said.endswith("xxx must be shorter; cut it\n")


def test_a_message_cannot_turn_words_around(capsys: pytest.CaptureFixture[str]) -> None:
    complain("exe.\u202egpj \x1b[2J")
    assert capsys.readouterr().err == "adiabat: exe.\ufffdgpj \ufffd[2J\n"


def test_embedding_shows_each_batch_and_not_only_whole_chunks(tmp_path: Path) -> None:
    write_world(tmp_path)
    texts = [{"_id": f"d{number}", "text": f"{number} " + "word " * 60} for number in range(200)]
    shown: list[tuple[int, int]] = []
    watch = Watch(progress=lambda label, done, total: shown.append((done, total)))
    adiabat.embed(tmp_path / "model", texts, tmp_path / "new", progress=watch)
    assert shown == sorted(shown)
    assert (shown[0], shown[-1]) == ((0, 200), (200, 200))
    # All lie in one chunk, and a batch has 1,024 tokens.
    assert len(shown) > 5
