"""Files that are written whole, and the one door for reading them again."""

import errno
import fcntl
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adiabat.core import disk
from adiabat.core.errors import DataError, InUseError, JobError, StoreError
from adiabat.core.files import (
    is_there,
    read_json,
    read_plain,
    reading,
    sole_writer,
    write_json,
    write_text,
    writing_to,
)

RECORD = {"name": "Grüße", "values": [1, 2.5, None, True], "nested": {"b": 1, "a": {}}}


def test_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_json({**RECORD, "by size": {2: "a", 10: "b"}}, tmp_path / "record.json")
    assert read_json(tmp_path / "record.json", remedy="rebuild it") == {
        **RECORD,
        "by size": {"2": "a", "10": "b"},
    }
    with pytest.raises(DataError, match=r"absent\.json must exist; rebuild it$"):
        read_json(tmp_path / "absent.json", remedy="rebuild it")
    with pytest.raises(DataError, match=r"must be readable, got: Is a directory; "):
        read_json(tmp_path, remedy="rebuild it")


def test_a_pipe_or_a_device_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.json", tmp_path / "zero"):
        with pytest.raises(JobError, match=f"{path.name} must .* got a device, pipe or socket"):
            read_json(path, remedy="rebuild it", error=JobError)


def test_a_file_that_is_small_by_nature_is_refused_above_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    path.write_bytes(b"12345")
    assert read_plain(path, limit=5) == b"12345"
    with pytest.raises(DataError, match=r"settings must have at most 4 bytes, got more"):
        read_plain(path, limit=4)
    # A file of the system's states no size.
    with pytest.raises(DataError, match=r"/proc/self/status must have at most 4 bytes"):
        read_plain(Path("/proc/self/status"), limit=4)
    os.truncate(path, 8 << 30)
    with pytest.raises(DataError, match=r"settings must have at most 268,435,456 bytes, got more"):
        read_json(path, remedy="rebuild it")


def test_every_flip_of_a_bit_of_a_json_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_json(RECORD, path)
    whole = path.read_bytes()
    for position in range(len(whole) - 1):  # the last byte ends the line
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 2]) + whole[position + 1 :])
        if whole[position : position + 1].isspace() and json.loads(whole) == _loaded(path):
            continue
        with pytest.raises(JobError, match=r"record\.json must be undamaged.*; rebuild it$"):
            read_json(path, remedy="rebuild it", error=JobError)


def _loaded(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "[" * 200_000, '{"a": 1, "written_by": "adiabat 9"}', "\udcff"]
)
def test_what_is_no_sealed_object_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(
        DataError, match=r"record\.json must be undamaged, got \w+: .*; rebuild it$"
    ) as caught:
        read_json(path, remedy="rebuild it")
    assert len(str(caught.value).replace(str(path), "")) < 300


@pytest.mark.parametrize(
    "fault", [EOFError(), RecursionError("deep"), KeyError("a"), UnicodeDecodeError("utf-8", b"x", 0, 1, "y")]
)
def test_any_fault_of_a_reader_names_the_file(tmp_path: Path, fault: Exception) -> None:
    with (
        pytest.raises(JobError, match=f"part must be undamaged, got {type(fault).__name__}"),
        reading(tmp_path / "part", remedy="x", error=JobError),
    ):
        raise fault


def test_an_error_of_our_own_and_an_interruption_pass_the_door(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^line 3$"), reading(tmp_path, remedy="x", error=JobError):
        raise DataError("line 3")
    with pytest.raises(KeyboardInterrupt), reading(tmp_path, remedy="x"):
        raise KeyboardInterrupt


def test_the_checksum_stands_in_the_file_and_not_in_the_record(tmp_path: Path) -> None:
    write_json(RECORD, tmp_path / "record.json")
    assert set(json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))) - set(RECORD) == {
        "checksum",
        "written_by",
    }


def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_text("a", tmp_path / "private")
        os.umask(0o022)
        write_text("a", tmp_path / "shared")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("private", "shared")] == [0o600, 0o644]


def test_what_a_killed_process_left_half_written_is_taken_by_the_next_writer(tmp_path: Path) -> None:
    (tmp_path / ".page.part0").write_bytes(b"half of a page that is longer than the next one")
    write_text("whole", tmp_path / "page")
    assert (tmp_path / "page").read_text(encoding="utf-8") == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    with (tmp_path / ".page.part0").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        write_text("mine", tmp_path / "page")
        assert (tmp_path / ".page.part0").read_bytes() == b""
    assert (tmp_path / "page").read_text(encoding="utf-8") == "mine"


def test_a_writer_whose_file_is_in_place_leaves_that_of_the_next_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def replace_and_begin_another(part: Path, target: Path) -> Path:
        moved = replace(part, target)
        part.write_text("of another process", encoding="utf-8")
        return moved

    monkeypatch.setattr(Path, "replace", replace_and_begin_another)
    write_text("mine", tmp_path / "page")
    assert (tmp_path / "page").read_text(encoding="utf-8") == "mine"
    assert [part.read_text(encoding="utf-8") for part in tmp_path.glob(".page.part*")] == [
        "of another process"
    ]


def test_many_writers_of_one_file_at_once_all_succeed(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(50):
            write_text(str(number) * 100, tmp_path / "page")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    text = (tmp_path / "page").read_text(encoding="utf-8")
    assert text == text[0] * 100
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


def test_a_file_that_could_not_take_its_place_is_removed(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    with pytest.raises(DataError, match="page must be writable, got Is a directory"):
        write_text("a", tmp_path / "page")
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


def test_a_directory_that_was_removed_is_told_from_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="page .* got No such file or directory; its directory was"):
        write_text("a", tmp_path / "gone" / "page")
    with (
        pytest.raises(DataError, match="page must be writable, got No space left on device; free"),
        writing_to(tmp_path / "page"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_error_also_where_the_rest_of_the_buffer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        disk,
        "_locked_part",
        lambda path: (path.with_name("part"), os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb")),
    )
    with pytest.raises(DataError, match="record must be writable, got No space left on device"):
        write_text("a", tmp_path / "record")


def test_a_second_writer_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with (
        sole_writer(tmp_path),
        pytest.raises(InUseError, match="must have one writer at a time"),
        sole_writer(tmp_path),
    ):
        pass
    with sole_writer(tmp_path):
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", [errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_written_unguarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    def refuses(handle: int, operation: int) -> None:
        raise OSError(answer, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuses)
    written = False
    with sole_writer(tmp_path):
        written = True
    assert written


def test_other_faults_of_locking_and_errors_of_the_body_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = BlockingIOError(errno.EAGAIN, "write could not complete")
    with pytest.raises(BlockingIOError) as raised, sole_writer(tmp_path):
        raise error
    assert raised.value is error

    def fails(handle: int, operation: int) -> None:
        raise OSError(errno.EIO, "a broken disk")

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(OSError, match="a broken disk"), sole_writer(tmp_path):
        pass


def test_a_link_to_nowhere_is_no_missing_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here", encoding="utf-8")
    (tmp_path / "good").symlink_to("file")
    (tmp_path / "lost").symlink_to("blobs/1")
    assert is_there(tmp_path / "good")
    assert not is_there(tmp_path / "other")
    with pytest.raises(StoreError, match="lost must exist, got a link to blobs/1"):
        is_there(tmp_path / "lost", error=StoreError)
