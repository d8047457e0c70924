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
from adiabat.dual_encoder.dataset_cache import ABANDONED_SECONDS, cache_folder, files_of
from adiabat.dual_encoder.pair_data import read_pairs
from tests.dual_encoder.problem import settings_of, write_problem, write_rows


def same(one: PairSet, other: PairSet) -> bool:
    """Whether pairs are equal in every part, texts and notes among it."""
    parts = ("query", "positive", "sources", "topics", "tags")
    lists = [(one.answers, other.answers), (one.negatives, other.negatives)]
    texts = [(getattr(one.texts, name), getattr(other.texts, name)) for name in ("queries", "documents", "query_ids")]
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in parts)
        and all(np.array_equal(a.values, b.values) and np.array_equal(a.offsets, b.offsets) for a, b in lists)
        and all(list(a) == list(b) for a, b in texts)
        and (one.name, one.notes, one.digest()) == (other.name, other.notes, other.digest())
    )


def read(folder: Path, *, cache: Path | None, **data: Any) -> tuple[PairSet, PairSet]:
    section = settings_of(data={"validation_fraction": 0.3, **data}).data
    return read_pairs(str(folder / "pairs.jsonl"), section, cache=cache)


@pytest.fixture
def never_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse() -> None:
        monkeypatch.setattr(reading, "stream_examples", lambda *_, **__: pytest.fail("the file was read again"))

    return refuse


def test_what_is_kept_equals_what_is_in_memory(tmp_path: Path) -> None:
    write_problem(tmp_path, queries=3_000)
    for one, other in zip(read(tmp_path, cache=None), read(tmp_path, cache=tmp_path / "cache"), strict=True):
        assert same(one, other)
        assert other.texts.folder is not None


def test_texts_of_any_script_come_back_as_they_were(tmp_path: Path) -> None:
    texts = ("שלום", "a\u2028b", "\U0001f600", "e\u0301", "x" * 10_000)
    write_rows(tmp_path / "pairs.jsonl", [{"query": f"{text} {n}", "positive": f"{text} \u0301"} for text in texts for n in range(4)])
    for one, other in zip(read(tmp_path, cache=None), read(tmp_path, cache=tmp_path / "cache"), strict=True):
        assert same(one, other)


def test_a_file_is_read_once(tmp_path: Path, never_read: Callable[[], None]) -> None:
    write_problem(tmp_path)
    before = read(tmp_path, cache=tmp_path / "cache")
    never_read()
    after = read(tmp_path, cache=tmp_path / "cache")
    assert all(same(one, other) for one, other in zip(before, after, strict=True))
    # How they are parted is not kept, so that it may change.
    assert len(read(tmp_path, cache=tmp_path / "cache", validation_fraction=0.6)[0]) < len(before[0])


def test_a_file_that_was_changed_is_read_again(tmp_path: Path) -> None:
    write_problem(tmp_path)
    before, _ = read(tmp_path, cache=tmp_path / "cache")
    file = tmp_path / "pairs.jsonl"
    rows = file.read_text().splitlines()
    file.write_text("\n".join(rows[:30]) + "\n")
    after, _ = read(tmp_path, cache=tmp_path / "cache")
    assert len(after) < len(before)
    status = file.stat()
    file.write_text("\n".join(row.replace("about", "ABOUT") for row in rows[:30]) + "\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert next(iter(read(tmp_path, cache=tmp_path / "cache")[0].texts.queries)).startswith("ABOUT")


@pytest.mark.parametrize("other", [{"columns": {"positive": "negative", "negative": "positive"}}, {"validation": "VALIDATION"}])
def test_other_columns_and_another_validation_are_other_pairs(tmp_path: Path, other: dict[str, Any]) -> None:
    write_problem(tmp_path)
    (tmp_path / "dev").mkdir()
    write_problem(tmp_path / "dev", queries=10)
    if "validation" in other:
        other = {"validation": str(tmp_path / "dev" / "pairs.jsonl")}
    before, _ = read(tmp_path, cache=tmp_path / "cache")
    section = settings_of(data=other).data
    after, _ = read_pairs(str(tmp_path / "pairs.jsonl"), section, cache=tmp_path / "cache")
    assert after.texts.folder != before.texts.folder


def test_a_faulty_file_keeps_nothing(tmp_path: Path) -> None:
    write_rows(tmp_path / "pairs.jsonl", [{"query": "a", "positive": "b"}, {"query": "", "positive": "b"}])
    with pytest.raises(DataError, match=r'pairs.jsonl:2: "query" must not be empty'):
        read(tmp_path, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_full_disk_keeps_nothing_and_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_problem(tmp_path)

    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(DataError, match=r"cache must have room for the pairs, got: No space left on device; free some space, or name"):
        read(tmp_path, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_process_left_is_cleared_after_a_day_and_not_before(tmp_path: Path) -> None:
    write_problem(tmp_path)
    for name, age in (("old", ABANDONED_SECONDS + 60), ("new", 60)):
        folder = tmp_path / "cache" / f".making-{name}"
        folder.mkdir(parents=True)
        status = folder.stat()
        os.utime(folder, (status.st_atime - age, status.st_mtime - age))
    read(tmp_path, cache=tmp_path / "cache")
    assert [folder.name for folder in (tmp_path / "cache").glob(".making-*")] == [".making-new"]


def test_two_processes_that_read_at_once_end_with_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_problem(tmp_path)
    stream = reading.stream_examples
    inner: list[PairSet] = []

    def other_process_first(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(reading, "stream_examples", stream)
        inner.extend(read(tmp_path, cache=tmp_path / "cache"))
        return stream(*given, **options)

    monkeypatch.setattr(reading, "stream_examples", other_process_first)
    outer = read(tmp_path, cache=tmp_path / "cache")
    assert all(same(one, other) for one, other in zip(inner, outer, strict=True))
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_the_cache_is_where_it_is_asked_for_or_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder("here") == Path("here")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder(None) == Path("/caches/adiabat")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder(None) == Path.home() / ".cache" / "adiabat"


def altered(path: Path, how: str, other: Path) -> None:
    content = bytearray(path.read_bytes())
    if how == "flip":
        content[len(content) // 2] ^= 4
    elif how == "cut":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = bytearray()
    elif how == "swap":
        content = bytearray(other.read_bytes())
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["flip", "cut", "empty", "swap"])
@pytest.mark.parametrize(
    "name", ["about.json", "checksums.json", "documents.arrow", "equal.npz", "numbers.npz", "queries.arrow", "query_ids.arrow"]
)
def test_pairs_that_were_damaged_are_read_again_and_it_is_said(tmp_path: Path, name: str, how: str) -> None:
    write_problem(tmp_path)
    before = read(tmp_path, cache=tmp_path / "cache")
    folder = before[0].texts.folder
    assert folder is not None
    assert sorted(path.name for path in folder.iterdir() if path.name != ".checked.json") == [
        "about.json", "checksums.json", "documents.arrow", "equal.npz", "numbers.npz", "queries.arrow", "query_ids.arrow",
    ]  # fmt: skip
    fresh = read(tmp_path, cache=None)
    altered(folder / name, how, folder / ("queries.arrow" if name != "queries.arrow" else "documents.arrow"))
    with pytest.warns(UserWarning, match=rf"{folder / name} must be undamaged, got .*; the pairs are read again"):
        after = read(tmp_path, cache=tmp_path / "cache")
    assert all(same(one, other) for one, other in zip(fresh, after, strict=True))


def test_a_file_of_equal_size_and_date_but_other_content_is_read_again(tmp_path: Path) -> None:
    write_problem(tmp_path)
    before, _ = read(tmp_path, cache=tmp_path / "cache")
    file = tmp_path / "pairs.jsonl"
    status, content = file.stat(), file.read_text()
    file.write_text(content.replace("about", "ABOUT"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    after, _ = read(tmp_path, cache=tmp_path / "cache")
    assert next(iter(after.texts.queries)).startswith("ABOUT")
    assert after.texts.folder != before.texts.folder


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_a_change_of_the_first_or_last_byte_shows_in_the_digest_of_blocks(tmp_path: Path, size: int) -> None:
    file = tmp_path / "rows.jsonl"
    digests = set()
    for place in (None, 0, size - 1):
        content = bytearray(size)
        if place is not None and size:
            content[place] = 1
        file.write_bytes(content)
        digests.add(files_of(str(file))[0][-1])
    assert len(digests) == min(3, size + 1)
