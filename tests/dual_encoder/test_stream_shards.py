"""What each shard of a stream takes of its sources: by hand, against a plain loop over lists, and whatever
the sizes are.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from adiabat.config.section import Exhausted
from adiabat.core.errors import DataError
from adiabat.core.formats import rebuilt
from adiabat.data.batch_sampler import shard_quotas
from adiabat.data.examples import ExampleReader, SourcePosition
from adiabat.data.records import Example
from adiabat.dual_encoder.stream_shards import Part, Row, Sources, Take
from adiabat.results.training_record import TrainedFile
from tests.dual_encoder.problem import write_rows

Taken = list[list[int]]
"""Numbers of the rows that a shard took, by source."""


def sources_of(folder: Path, sizes: list[int], *, size: int, exhausted: Exhausted) -> Sources:
    for source, count in enumerate(sizes):
        write_rows(folder / f"{source}.jsonl", [{"query": str(row), "positive": "p"} for row in range(count)])
    readers = [ExampleReader(str(folder / f"{source}.jsonl")) for source in range(len(sizes))]
    return Sources(readers, np.full(len(sizes), 1 / len(sizes)), size, exhausted)


def taking(taken: Taken) -> Take:
    def take(examples: Iterator[Example], place: int) -> None:
        taken[place] += [int(example.query) for example in examples]

    return take


def shards(sources: Sources, count: int) -> list[tuple[Taken, tuple[Part, ...]]]:
    """The first shards, or all up to the last."""
    starts, found = [SourcePosition()] * len(sources.tapes), []
    for number in range(count):
        taken: Taken = [[] for _ in starts]

        parts = sources.read(number, starts, taking(taken))
        found.append((taken, parts))
        starts = [part.end for part in parts]
        if sources.is_last(parts):
            break
    return found


def plain(sizes: list[int], quotas: list[list[int]], exhausted: Exhausted) -> list[Taken]:
    """The same over lists; `quotas` are those of each shard where all sources are live."""
    places, found = [0] * len(sizes), []
    for asked in quotas:
        shard: Taken = []
        for source, size in enumerate(sizes):
            rows: list[int] = []
            begun = places[source]
            while len(rows) < asked[source]:
                if places[source] == size:
                    if exhausted != "cycle":
                        break
                    places[source] = 0
                if len(rows) == size or (rows and places[source] == begun % size):
                    break
                rows.append(places[source])
                places[source] += 1
            shard.append(rows)
        found.append(shard)
        if exhausted == "stop" and any(len(rows) < count for rows, count in zip(shard, asked, strict=True)):
            break
    return found


def test_quotas_by_hand() -> None:
    thirds = np.array([1.0, 1.0, 1.0]) / 3
    # 20/3 = 6.67, 40/3 = 13.33, 60/3 = 20.
    assert [shard_quotas(number, 20, thirds).tolist() for number in range(3)] == [[6] * 3, [7] * 3, [7] * 3]
    assert shard_quotas(1, 20, thirds, live=[False, True, True]).tolist() == [0, 10, 10]
    assert shard_quotas(0, 8, np.array([0.75, 0.25])).tolist() == [6, 2]


def test_quotas_add_up_to_the_weights_of_all_shards_together() -> None:
    weights = np.array([0.123, 0.001, 0.876])
    asked = np.array([shard_quotas(number, 1_000, weights) for number in range(500)])
    assert np.abs(np.cumsum(asked, axis=0) - np.outer(np.arange(1, 501) * 1_000, weights)).max() <= 1.0
    assert asked.max(axis=0).tolist() == [123, 1, 876]


@pytest.mark.parametrize("exhausted", ["cycle", "stop"])
@pytest.mark.parametrize(
    ("sizes", "size"),
    [([12, 24, 48], 20), ([5, 100, 7], 30), ([9, 9], 9), ([3], 10), ([40], 7), ([10, 20], 20)],
)
def test_shards_are_those_of_loops(tmp_path: Path, sizes: list[int], size: int, exhausted: Exhausted) -> None:
    sources = sources_of(tmp_path, sizes, size=size, exhausted=exhausted)
    quotas = [shard_quotas(number, size, sources.weights).tolist() for number in range(12)]
    assert [taken for taken, _ in shards(sources, 12)] == plain(sizes, quotas, exhausted)


@pytest.mark.parametrize("exhausted", ["cycle", "drop", "stop"])
@pytest.mark.parametrize("seed", range(6))
def test_no_row_comes_twice_in_a_shard_and_none_is_passed_over(
    tmp_path: Path, exhausted: Exhausted, seed: int
) -> None:
    random = np.random.default_rng(seed)
    sizes, size = random.integers(1, 40, random.integers(1, 4)).tolist(), int(random.integers(3, 60))
    found = shards(sources_of(tmp_path, sizes, size=size, exhausted=exhausted), 15)
    for taken, parts in found:
        assert [len(rows) for rows in taken] == [part.given for part in parts]
        assert all(len(set(rows)) == len(rows) for rows in taken)
    for source, count in enumerate(sizes):
        rows = [row for taken, _ in found for row in taken[source]]
        assert rows == [place % count for place in range(len(rows))]


def test_what_ran_out_is_dropped_until_all_have_and_then_all_begin_anew(tmp_path: Path) -> None:
    found = shards(sources_of(tmp_path, [3, 10], size=6, exhausted="drop"), 5)
    # Three of each; the end of the first is seen; the second alone, to its end; both anew.
    assert [taken for taken, _ in found] == [
        [[0, 1, 2], [0, 1, 2]],
        [[], [3, 4, 5]],
        [[], [6, 7, 8, 9]],
        [[0, 1, 2], [0, 1, 2]],
        [[], [3, 4, 5]],
    ]
    assert [part.end.ends for part in found[-1][1]] == [2, 1]


def test_a_stream_whose_end_nobody_saw_begins_anew_without_an_empty_shard(tmp_path: Path) -> None:
    found = shards(sources_of(tmp_path, [8], size=4, exhausted="drop"), 4)
    assert [taken for taken, _ in found] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]], [[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    assert found[2][1][0].start == SourcePosition(ends=1)


def test_a_small_source_counts_as_often_as_its_weight_says(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, [5, 100], size=40, exhausted="cycle")
    taken, parts = shards(sources, 1)[0]
    assert [len(rows) for rows in taken] == [5, 20]
    assert sources.times(parts) == (4.0, 1.0)
    assert sources_of(tmp_path, [5, 100], size=40, exhausted="drop").times(parts) == (1.0, 1.0)


def test_the_last_shard_before_a_stop_keeps_the_ratio(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, [15, 100], size=20, exhausted="stop")
    found = shards(sources, 5)
    assert [[len(rows) for rows in taken] for taken, _ in found] == [[10, 10], [5, 10]]
    assert [sources.times(parts) for _, parts in found] == [(1.0, 1.0), (1.0, 0.5)]


@pytest.mark.parametrize("exhausted", ["cycle", "drop", "stop"])
def test_a_shard_is_read_again_from_where_its_parts_began(tmp_path: Path, exhausted: Exhausted) -> None:
    sizes = [7, 30, 11]
    read = shards(sources_of(tmp_path, sizes, size=16, exhausted=exhausted), 8)
    for number, (taken, parts) in enumerate(read):
        again: Taken = [[], [], []]
        sources = sources_of(tmp_path, sizes, size=16, exhausted=exhausted)
        assert sources.read(number, [part.start for part in parts], taking(again)) == parts
        assert again == taken


def test_a_row_comes_back_from_the_disk_as_it_was(tmp_path: Path) -> None:
    parts = shards(sources_of(tmp_path, [5, 8], size=6, exhausted="cycle"), 3)[-1][1]
    row = Row(2, 10, 5, 6, 1, 0, (3, 2), "ab" * 32, False, parts, TrainedFile(3, 4, 0, "cd" * 32))
    written = json.loads(json.dumps(asdict(row)))
    assert rebuilt(Row, written, tmp_path / "shards.jsonl", remedy="start again") == row


def test_a_source_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"0.jsonl must hold at least one row, got none"):
        shards(sources_of(tmp_path, [0, 5], size=4, exhausted="drop"), 1)
