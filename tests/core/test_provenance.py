"""Checksums of files that belong together, and of lines that a run adds one by one."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from adiabat.core import provenance as seals
from adiabat.core.errors import DataError, JobError, ModelError, StoreError
from adiabat.core.provenance import (
    CHECKED,
    CHECKSUMS,
    Digest,
    DigestedFile,
    digest_of,
    last_checksum,
    line_of,
    packaged_folder,
    read_array,
    read_lines,
    require_published,
    require_seal,
    seal,
    write_array,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one").write_bytes(b"abc")
    (tmp_path / "two").write_bytes(bytes(1000))
    seal(tmp_path, ["one", "two"])
    return tmp_path


def check(folder: Path, *, always: bool = False) -> frozenset[str]:
    return require_seal(folder, remedy="rebuild it", error=StoreError, always=always)


def test_a_digest_is_the_published_one_of_sha_256_and_may_leave_a_header_out(folder: Path) -> None:
    assert digest_of(folder / "one") == Digest(
        3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
    (folder / "three").write_bytes(b"headabc")
    assert digest_of(folder / "three", start=4) == digest_of(folder / "one")._replace(size=7, start=4)


def test_every_key_of_a_list_of_checksums_is_a_file_as_earlier_versions_expect(folder: Path) -> None:
    assert json.loads((folder / CHECKSUMS).read_text()).keys() == {"one", "two", "checksum"}


def test_what_has_not_changed_passes_and_its_names_come_back(folder: Path) -> None:
    assert check(folder) == check(folder) == check(folder, always=True) == {"one", "two"}


@pytest.mark.parametrize("content", [b"", b"abd", b"ab", b"abcd", bytes(3)])
def test_a_changed_file_is_refused_by_name_also_after_it_passed(folder: Path, content: bytes) -> None:
    check(folder)
    (folder / "one").write_bytes(content)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"/one must be undamaged.*rebuild it$"):
            check(folder)


def test_swapped_and_missing_files_are_refused(folder: Path) -> None:
    (folder / "three").write_bytes(bytes(999) + b"x")
    seal(folder, ["two", "three"])
    for source, target in (("two", "spare"), ("three", "two"), ("spare", "three")):
        (folder / source).rename(folder / target)
    with pytest.raises(StoreError, match="/(two|three) must be undamaged"):
        check(folder)
    seal(folder, ["two", "three"])
    (folder / "two").unlink()
    with pytest.raises(StoreError, match="/two must exist"):
        check(folder)


def test_a_change_that_sets_the_old_date_again_is_seen(folder: Path) -> None:
    check(folder)
    before = (folder / "one").stat()
    (folder / "one").write_bytes(b"abd")
    os.utime(folder / "one", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StoreError, match="/one must be undamaged"):
        check(folder)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read, as they are."""
    names: list[str] = []
    monkeypatch.setattr(seals, "TICK_NS", 0)
    monkeypatch.setattr(
        seals,
        "digest_of",
        lambda path, *, start, **_: (names.append(path.name), digest_of(path, start=start))[1],
    )
    return names


def test_files_are_read_once_until_they_change_or_all_are_asked_for(folder: Path, read: list[str]) -> None:
    check(folder)
    check(folder)
    assert sorted(read) == ["one", "two"]
    check(folder, always=True)
    assert len(read) == 4
    (folder / "one").write_bytes(b"abc")
    check(folder)
    assert read[4:] == ["one"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"one": 1, "two": [1]}', "null"])
def test_a_damaged_memory_of_checks_means_that_all_is_checked(folder: Path, content: str) -> None:
    (folder / CHECKED).write_text(content, encoding="utf-8")
    check(folder)
    (folder / "one").write_bytes(b"abd")
    (folder / CHECKED).write_text(content, encoding="utf-8")
    with pytest.raises(StoreError, match="/one must be undamaged"):
        check(folder)


def test_a_damaged_list_of_checksums_is_refused(folder: Path) -> None:
    record = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
    record["one"]["size"] = 4
    (folder / CHECKSUMS).write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(StoreError, match=r"checksums\.json must be undamaged"):
        check(folder)


def test_a_folder_that_cannot_be_written_is_checked_each_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(text: str, path: Path) -> None:
        raise seals.DataError("no space")

    monkeypatch.setattr(seals, "write_text", full)
    assert check(folder) == {"one", "two"}
    assert not (folder / CHECKED).exists()
    # A file that changed a moment ago is read again too.
    monkeypatch.undo()
    monkeypatch.setattr(seals, "TICK_NS", 10**18)
    check(folder)
    assert not (folder / CHECKED).exists()


def test_every_checksum_is_compared_once_in_a_process_where_the_environment_asks_for_it(
    folder: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(folder)
    read.clear()
    monkeypatch.setattr(seals, "_compared", set())
    monkeypatch.setenv(seals.VERIFY, "1")
    check(folder)
    check(folder)
    assert sorted(read) == ["one", "two"]


def test_a_written_file_has_the_digest_of_what_was_written_whatever_the_disk_holds(folder: Path) -> None:
    with DigestedFile(folder / "four") as file:
        file.write(b"ab")
        file.write(memoryview(b"c"))
        file.sync()
        (folder / "four").write_bytes(b"xyz")
    assert file.digest == digest_of(folder / "one") != digest_of(folder / "four")


def test_an_array_comes_back_and_numpy_reads_it_too(folder: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_array(array, folder / "a.npy")
    assert np.array_equal(read_array(folder / "a.npy", remedy="make it again"), array)
    assert np.array_equal(np.load(folder / "a.npy"), array)


@pytest.mark.parametrize("place", [0, 20, 90, 130, 150, -1])
def test_an_array_of_which_a_byte_is_another_is_refused(folder: Path, place: int) -> None:
    write_array(np.arange(6, dtype=np.float32), folder / "a.npy")
    content = bytearray((folder / "a.npy").read_bytes())
    content[place] ^= 1
    (folder / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"/a\.npy .* its content does not match.*; make it again$"):
        read_array(folder / "a.npy", remedy="make it again")
    for cut in (0, 10, 100):
        (folder / "a.npy").write_bytes(content[:cut])
        with pytest.raises(DataError, match=r"/a\.npy must be undamaged"):
            read_array(folder / "a.npy", remedy="make it again")


# --- Lines ---

ROWS = [{"step": number, "loss": 1 / number} for number in range(1, 6)]


def write_lines(path: Path) -> bytes:
    lines, after = [], ""
    for row in ROWS:
        lines.append(line_of(row, after=after))
        after = lines[-1].checksum
    path.write_text("".join(map(str, lines)), encoding="utf-8")
    return path.read_bytes()


def rows_in(path: Path) -> list[dict[str, object]]:
    return [line.row for line in read_lines(path, remedy="start anew", error=JobError)]


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_lines(tmp_path / "log.jsonl")
    assert rows_in(tmp_path / "log.jsonl") == ROWS


def test_a_file_of_an_earlier_version_is_read_without_checksums(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n', encoding="utf-8")
    assert rows_in(path) == [{"step": 1}, {"step": 2}]


def test_every_flipped_byte_is_refused_by_name_and_line_or_cuts_off_the_last_row(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = write_lines(path)
    refused = []
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 2]) + whole[place + 1 :])
        try:
            found = rows_in(path)
        except JobError as fault:
            refused.append(str(fault))
        else:
            # The end of the last line, which then counts as cut off; or the name of the first checksum, which
            # then counts as a column.
            if place == len(whole) - 1:
                assert found == ROWS[:4]
            else:
                assert b"\n" not in whole[:place]
                assert [row | ROWS[number] for number, row in enumerate(found)] == found
    assert all(f"{path}:" in sentence and sentence.endswith("; start anew") for sentence in refused)


@pytest.mark.parametrize("gone", range(4))
def test_a_row_that_is_gone_is_noticed_at_the_next_one(tmp_path: Path, gone: int) -> None:
    path = tmp_path / "log.jsonl"
    lines = write_lines(path).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    with pytest.raises(JobError, match=rf"log\.jsonl:{gone + 1} must be undamaged, .*; start anew"):
        rows_in(path)


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = write_lines(path)
    for cut in range(2, len(str(line_of(ROWS[-1])))):
        path.write_bytes(whole[:-cut])
        assert rows_in(path) == ROWS[:-1]
    path.write_bytes(whole[:-1])
    assert rows_in(path) == ROWS


def test_a_line_goes_on_from_the_last_checksum(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert last_checksum(path, remedy="") == ""
    write_lines(path)
    line = line_of({"step": 6}, after=last_checksum(path, remedy=""))
    path.write_bytes(path.read_bytes() + str(line).encode())
    assert rows_in(path) == [*ROWS, {"step": 6}]


def test_rooms_have_their_files_beside_them() -> None:
    assert (packaged_folder("datasets") / "manifest.json").is_file()
    assert (packaged_folder("adiabatic") / "README.md").is_file()


def test_a_file_as_it_was_published_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"abc")
    # The digest of "abc" in FIPS 180-4.
    assert require_published(path, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == path


def test_another_or_none_is_told_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    with pytest.raises(DataError) as fault:
        require_published(path, "00")
    assert str(fault.value) == f"{path} must exist, got no such file; install adiabat again"
    path.write_bytes(b"abd")
    with pytest.raises(ModelError) as other:
        require_published(path, "00", remedy="fetch it again", error=ModelError)
    assert (
        str(other.value)
        == f"{path} must have the sha256 00, got {hashlib.sha256(b'abd').hexdigest()}; fetch it again"
    )
