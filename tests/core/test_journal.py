"""Lines that a run adds one by one."""

from pathlib import Path

import pytest

from adiabat.core.errors import JobError
from adiabat.core.provenance import last_checksum, line_of, read_lines

ROWS = [{"step": number, "loss": 1 / number} for number in range(1, 6)]


def write(path: Path) -> bytes:
    lines, after = [], ""
    for row in ROWS:
        lines.append(line_of(row, after=after))
        after = lines[-1].checksum
    path.write_text("".join(map(str, lines)), encoding="utf-8")
    return path.read_bytes()


def rows_in(path: Path) -> list[dict[str, object]]:
    return [line.row for line in read_lines(path, remedy="start anew", error=JobError)]


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path / "log.jsonl")
    assert rows_in(tmp_path / "log.jsonl") == ROWS


def test_a_file_of_an_earlier_version_is_read_without_checksums(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n', encoding="utf-8")
    assert rows_in(path) == [{"step": 1}, {"step": 2}]


def test_every_flipped_byte_is_refused_by_name_and_line_or_cuts_off_the_last_row(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = write(path)
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
    lines = write(path).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    with pytest.raises(
        JobError, match=rf"log\.jsonl:{gone + 1} must be undamaged, got ValueError: .*; start anew"
    ):
        rows_in(path)


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = write(path)
    for cut in range(2, len(str(line_of(ROWS[-1])))):
        path.write_bytes(whole[:-cut])
        assert rows_in(path) == ROWS[:-1]
    path.write_bytes(whole[:-1])
    assert rows_in(path) == ROWS


def test_a_line_goes_on_from_the_last_checksum(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert last_checksum(path, remedy="") == ""
    write(path)
    line = line_of({"step": 6}, after=last_checksum(path, remedy=""))
    path.write_bytes(path.read_bytes() + str(line).encode())
    assert rows_in(path) == [*ROWS, {"step": 6}]
