"""Pairs that are kept on disk: equal to those in memory, read once, and never half there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.data.pair_sets import PairSet
from adiabat.dual_encoder import pair_data as reading
from adiabat.dual_encoder.pair_data import ABANDONED_SECONDS, cache_folder, files_of, read_pairs
from tests.dual_encoder.problem import settings_of, write_problem, write_rows


def contents(pairs: PairSet) -> list[Any]:
    """Every part, texts and notes among it."""
    each = [getattr(pairs, name).tolist() for name in ("query", "positive", "sources", "topics", "tags")]
    ragged = (pairs.answers, pairs.negatives)
    lists = [(one.values.tolist(), one.offsets.tolist()) for one in ragged]
    texts = [list(getattr(pairs.texts, name)) for name in ("queries", "documents", "query_ids")]
    return [*each, *lists, *texts, pairs.name, pairs.notes, pairs.digest()]


def read(folder: Path, *, cached: bool = True, **data: Any) -> tuple[PairSet, PairSet]:
    section = settings_of(data=data if "validation" in data else {"validation_fraction": 0.3, **data}).data
    return read_pairs(str(folder / "pairs.jsonl"), section, cache=folder / "cache" if cached else None)


def check_as_in_memory(folder: Path) -> None:
    assert list(map(contents, read(folder))) == list(map(contents, read(folder, cached=False)))


def first_query(folder: Path) -> str:
    return next(iter(read(folder)[0].texts.queries))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_problem(tmp_path)
    return tmp_path


@pytest.mark.parametrize("queries", [40, 3_000])
def test_what_is_kept_equals_what_is_in_memory_and_is_read_once(
    tmp_path: Path, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_problem(tmp_path, queries=queries)
    check_as_in_memory(tmp_path)
    before = read(tmp_path)
    monkeypatch.setattr(reading, "stream_examples", lambda *_, **__: pytest.fail("the file was read again"))
    assert list(map(contents, read(tmp_path))) == list(map(contents, before))
    # How they are parted is not kept, so that it may change.
    assert len(read(tmp_path, validation_fraction=0.6)[0]) < len(before[0])


def test_texts_of_any_script_come_back_as_they_were(tmp_path: Path) -> None:
    texts = ("שלום", "a\u2028b", "\U0001f600", "e\u0301", "x" * 10_000)
    rows = [{"query": f"{text} {n}", "positive": f"{text} \u0301"} for text in texts for n in range(4)]
    write_rows(tmp_path / "pairs.jsonl", rows)
    check_as_in_memory(tmp_path)


def test_a_file_that_was_changed_is_read_again(here: Path) -> None:
    before, file = read(here)[0], here / "pairs.jsonl"
    content = file.read_text()
    # Another size; another date; and the same size and date, but other content.
    file.write_text("".join(content.splitlines(keepends=True)[:30]))
    assert len(read(here)[0]) < len(before)
    status = file.stat()
    file.write_text(file.read_text().replace("about", "ABOUT"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert first_query(here).startswith("ABOUT")
    status = file.stat()
    file.write_text(file.read_text().replace("ABOUT", "AbOuT"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert first_query(here).startswith("AbOuT")


def test_other_columns_and_another_validation_are_other_pairs(here: Path) -> None:
    write_rows(here / "dev.jsonl", [{"query": "new", "positive": "p"}])
    swapped = {"columns": {"positive": "negative", "negative": "positive"}}
    others = ({}, swapped, {"validation": str(here / "dev.jsonl")})
    assert len({read(here, **other)[0].texts.folder for other in others}) == 3


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_a_change_of_the_first_or_last_byte_shows_in_the_digest_of_blocks(tmp_path: Path, size: int) -> None:
    file, digests = tmp_path / "rows.jsonl", set()
    for place in (None, 0, size - 1):
        content = bytearray(size)
        if place is not None and size:
            content[place] = 1
        file.write_bytes(content)
        digests.add(files_of(str(file))[0][-1])
    assert len(digests) == min(3, size + 1)


def full(*_: object, **__: object) -> NoReturn:
    raise OSError(28, "No space left on device")


def test_a_faulty_file_and_a_full_disk_keep_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.raises(DataError, match="cache could not be written: .*No space left on device"):
            read(here)
    section = settings_of(data={"validation_fraction": 0.3}).data
    with pytest.raises(DataError, match=r"^/proc/pairs could not be written: .* \(data.cache\)$"):
        read_pairs(str(here / "pairs.jsonl"), section, cache=Path("/proc/pairs"))
    write_rows(here / "pairs.jsonl", [{"query": "a", "positive": "b"}, {"query": "", "positive": "b"}])
    with pytest.raises(DataError, match=r'pairs.jsonl:2: "query" must not be empty'):
        read(here)
    assert list((here / "cache").iterdir()) == []


def test_what_a_killed_process_left_is_cleared_after_a_day_and_not_before(here: Path) -> None:
    for name, age in (("old", ABANDONED_SECONDS + 60), ("new", 60)):
        folder = here / "cache" / f".making-{name}"
        folder.mkdir(parents=True)
        status = folder.stat()
        os.utime(folder, (status.st_atime - age, status.st_mtime - age))
    read(here)
    assert [folder.name for folder in (here / "cache").glob(".making-*")] == [".making-new"]


def test_two_processes_reading_at_once_make_one_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reading.stream_examples
    inner: list[PairSet] = []

    def other_process_first(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(reading, "stream_examples", stream)
        inner.extend(read(here))
        return stream(*given, **options)

    monkeypatch.setattr(reading, "stream_examples", other_process_first)
    assert list(map(contents, read(here))) == list(map(contents, inner))
    assert len(list((here / "cache").iterdir())) == 1


def test_the_cache_is_where_it_is_asked_for_or_where_caches_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cache_folder("here") == Path("here")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder(None) == Path("/caches/adiabat")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder(None) == Path.home() / ".cache" / "adiabat"


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "flip": lambda content, other: flipped(content),
    "cut": lambda content, other: content[: len(content) // 2],
    "empty": lambda content, other: b"",
    "swap": lambda content, other: other,
}
FILES = ["documents.arrow", "queries.arrow", "query_ids.arrow", "equal.npz", "numbers.npz", "about.json"]


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", [*FILES, "checksums.json"])
def test_pairs_that_were_damaged_are_read_again_and_it_is_said(here: Path, name: str, how: str) -> None:
    folder = read(here)[0].texts.folder
    assert {path.name for path in folder.iterdir()} - {".checked.json"} == {*FILES, "checksums.json"}
    damaged, other = folder / name, folder / ("queries.arrow" if name != "queries.arrow" else FILES[0])
    damaged.write_bytes(DAMAGE[how](damaged.read_bytes(), other.read_bytes()))
    with pytest.warns(UserWarning, match=rf"{damaged} must be undamaged, got .*; the pairs are read again"):
        read(here)
    check_as_in_memory(here)
