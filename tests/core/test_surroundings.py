"""Where a process may find itself: without a home, with streams that are closed, full or of few letters, on a
terminal without width.
"""

import errno
import io
import json
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.surroundings import (
    ESCAPING,
    Heedless,
    console_size,
    hub_cache,
    release_stdout,
    require_words,
    settle_streams,
    settle_terminal,
    shows_any_text,
    user_cache,
)
from tests.forks import exit_code


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, and no other that is stated."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def homeless(path: object = None) -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_the_cache_is_where_the_user_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_cache() == tmp_path / "home" / ".cache" / "adiabat"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert user_cache() == tmp_path / "cache" / "adiabat"
    assert hub_cache("HF_HUB_CACHE", "hub") is None


def test_a_user_without_a_home_has_a_cache_among_temporary_files_and_is_told(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", homeless)
    own = temporary / f"adiabat-{os.getuid()}"
    with pytest.warns(
        UserWarning, match=f"there is no home directory: caches are in {own}; set XDG_CACHE_HOME"
    ):
        assert user_cache() == own
    assert own.stat().st_mode & 0o777 == 0o700
    with pytest.warns(UserWarning, match="there is no home directory"):
        assert hub_cache("HF_HUB_CACHE", "hub") == own / "huggingface" / "hub"
    monkeypatch.setenv("HF_HOME", "/models")
    assert hub_cache("HF_HUB_CACHE", "hub") is None


@pytest.mark.parametrize("home", ["/proc", "/proc/nowhere", "/dev/null"])
def test_a_home_that_cannot_be_written_is_named_and_replaced(
    home: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home)
    with pytest.warns(UserWarning, match=f"{home}/.cache cannot be written: caches are in "):
        assert user_cache() == temporary / f"adiabat-{os.getuid()}"
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/stated")
    assert user_cache() == Path("/proc/stated/adiabat")


def test_a_model_cache_that_can_only_be_read_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".cache" / "huggingface" / "hub").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert hub_cache("HF_HUB_CACHE", "hub") is None
    with pytest.warns(UserWarning, match="cannot be written"):
        assert hub_cache("HF_DATASETS_CACHE", "datasets") is not None


def test_a_temporary_cache_that_another_user_planted_is_refused(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", homeless)
    (temporary / f"adiabat-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(DataError, match=r"must be a folder of the user's own; set XDG_CACHE_HOME"):
        user_cache()


def written(text: str, encoding: str) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors=ESCAPING, write_through=True)
    stream.write(text)
    return raw.getvalue().decode(encoding)


def test_signs_that_an_encoding_lacks_are_replaced_and_letters_escaped() -> None:
    assert (
        written("−0.5\N{NO-BREAK SPACE}% → é 星 🦄 …", "ascii") == "-0.5 % -> \\xe9 \\u661f \\U0001f984 ..."
    )
    assert written("±2 × é 星", "latin-1") == "±2 × é \\u661f"
    assert written("− é 星 🦄 \ud800", "utf-8") == "− é 星 🦄 \\ud800"


@pytest.mark.parametrize(
    ("encoding", "any_text"),
    [("utf-8", True), ("UTF8", True), ("ascii", False), ("iso-8859-1", False), ("cp1252", False)],
)
def test_an_encoding_without_every_letter_is_known(encoding: str, any_text: bool) -> None:
    assert shows_any_text(io.TextIOWrapper(io.BytesIO(), encoding=encoding)) is any_text


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_closed_stream_is_opened_on_nothing_before_a_file_takes_its_place(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    def settled() -> None:
        for descriptor in closed:
            os.close(descriptor)
        for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
            setattr(sys, name, None if descriptor in closed else getattr(sys, f"__{name}__"))
        settle_streams()
        with (tmp_path / "weights").open("wb") as file:
            assert file.fileno() > 2
        print("nobody reads this", flush=True)
        print("nor this", file=sys.stderr, flush=True)

    assert exit_code(settled) == 0


class FullStream(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    flush = write  # type: ignore[assignment]


def test_notes_that_cannot_be_written_end_no_run() -> None:
    stream = Heedless(FullStream())
    Console(file=stream).print("a note")  # type: ignore[arg-type]
    stream.flush()
    assert stream.write("another") == 7


def test_output_that_cannot_be_written_does_not_fail_again_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Pending(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys, "stdout", Pending())
    release_stdout()
    print("nobody reads this", flush=True)


@pytest.mark.parametrize("width", ["0", "1", "abc", "-3", "", "²", "1e3", "9" * 5000])
def test_a_width_that_is_of_no_use_counts_as_not_stated(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("LINES", "0")
    said = io.StringIO()
    Console(file=said, **console_size()).print("a note")
    assert said.getvalue() == "a note\n"
    settle_terminal()
    assert 40 <= int(os.environ["COLUMNS"]) <= 1000
    assert int(os.environ["LINES"]) > 0
    assert console_size() == {}


def test_words_that_the_locale_cannot_read_are_shown_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    word = "m\udcc3\udca9tal"
    require_words(["search", word])
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    require_words(["search", "metal"])
    with pytest.raises(ConfigError, match="letters of métal; .*UTF-8, or set PYTHONUTF8=1"):
        require_words(["search", word])


def test_a_width_of_use_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("LINES", raising=False)
    assert console_size() == {}
    settle_terminal()
    assert os.environ["COLUMNS"] == "120"
    assert "LINES" not in os.environ


def test_json_is_valid_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    from adiabat.cli.options import answer

    record = {"text": "é 星 🦄 −\N{NO-BREAK SPACE}\ud800"}
    for encoding in ("ascii", "latin-1", "utf-8"):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, errors=ESCAPING))
        answer(record)
        assert json.loads(raw.getvalue().decode(encoding)) == record
