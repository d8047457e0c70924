"""The mined file while it grows, and when it is done."""

import errno
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.core.formats import rebuilt
from adiabat.data.examples import read_examples
from adiabat.data.records import Example, ExampleSet
from adiabat.mining.candidates import PASSED, REASONS, code_of
from adiabat.mining.mine_checks import bare_path, ending_of
from adiabat.mining.mined_file import (
    BARE_FILE,
    EXAMPLES,
    ROW_FILES,
    ROWS_FILE,
    SHARE_EDGES,
    STATE_FILE,
    MinedRows,
    MiningCounts,
    row_of,
)
from adiabat.mining.miner import MinedQuery
from tests.mining.world import CORPUS, QUERY, mined, miner_of

PLAN = {"settings": {"x": 1}}


def test_rows_are_those_of_whole_blocks_after_a_kill(tmp_path: Path) -> None:
    partial = MinedRows.open(tmp_path, PLAN)
    partial.counts.counts["queries"] = 2
    partial.extend([{"a": 1, "neg": [7]}, {"a": 2, "neg": []}, {"a": 3, "neg": [8]}], 3)
    for name in ROW_FILES:
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"a": 4')
    again = MinedRows.open(tmp_path, PLAN)
    assert (again.done, again.counts.counts["queries"]) == (3, 2)
    assert (tmp_path / ROWS_FILE).read_text() == '{"a": 1, "neg": [7]}\n{"a": 3, "neg": [8]}\n'
    assert (tmp_path / BARE_FILE).read_text() == '{"a": 2, "neg": []}\n'
    assert MinedRows.open(tmp_path, {"settings": {"x": 2}}).done == 0
    assert not (tmp_path / STATE_FILE).exists()


@pytest.mark.parametrize("name", ROW_FILES)
@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content.replace(b"neg", b"beg")])
def test_rows_that_are_not_those_of_before_are_refused_by_name(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    MinedRows.open(tmp_path, PLAN).extend([{"a": 1, "neg": [7]}, {"a": 2, "neg": []}], 2)
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with pytest.raises(DataError, match=rf"{name} must be undamaged, .* checksum; remove the folder .*"):
        MinedRows.open(tmp_path, PLAN)


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    partial = MinedRows.open(tmp_path, PLAN)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=f"{ROWS_FILE} must be writable, got No space left on device"):
        partial.extend([{"a": 1, "neg": [7]}], 1)


@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz", "m.JSONL.zst"])
def test_the_file_is_packed_as_its_name_says(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    partial = MinedRows.open(folder, PLAN)
    partial.extend([{"query": "é", "pos": ["a"], "neg": []}, {"query": "q", "pos": ["b"], "neg": ["c"]}], 2)
    apart = bare_path(tmp_path / name)
    assert apart.name == name.replace("m.", "m.without-negatives.")
    partial.publish(tmp_path / name, apart)
    with pytest.raises(DataError, match=f"out must be a new file, .*{name} exists; remove it"):
        partial.publish(tmp_path / name, None)
    for path, query in ((tmp_path / name, "q"), (apart, "é")):
        examples = read_examples(path)
        assert isinstance(examples, ExampleSet)
        assert [one.query for one in examples.examples] == [query]
    if name.endswith(".gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()) == (folder / ROWS_FILE).read_bytes()


@pytest.mark.parametrize("name", ["m.json", "m", "m.jsonl.bz2", ".jsonl", "m.parquet"])
def test_other_endings_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="out must end in .jsonl, .jsonl.gz or .jsonl.zst"):
        ending_of(Path(name))


def test_a_row_holds_ids_or_texts_and_a_score_for_each(tmp_path: Path) -> None:
    example = Example("x", QUERY, ("answer",), ("mat",))
    miner = miner_of(tmp_path, [example], listed="keep", negatives_per_query=2)
    (one,) = mined(miner)
    by_id, by_text = (row_of(one, miner.corpus, ids=ids) for ids in (True, False))
    assert list(by_id) == ["query_id", "query", "pos", "neg", "pos_scores", "neg_scores"]
    assert by_id["pos"] == ["answer"]
    assert by_id["neg"][0] == "mat"
    for key in ("pos", "neg"):
        assert by_text[key] == [CORPUS[name] for name in by_id[key]]
        assert len(by_id[f"{key}_scores"]) == len(by_id[key])
    assert by_text["neg_scores"] == by_id["neg_scores"]
    json.dumps(by_id, allow_nan=False)


WORDS = {f"d{number}": f"word{number % 5} word{number % 7} common text {number}" for number in range(60)}


def queries(folder: Path, count: int = 25) -> list[MinedQuery]:
    examples = [
        Example(f"x{number}", f"word{number % 5} common {number}", (f"d{number}",)) for number in range(count)
    ]
    return mined(miner_of(folder, examples, corpus=WORDS, depth=30, skip_first=1, relative_margin=0.1))


def tally_of(every: list[MinedQuery], *, written: bool = True) -> MiningCounts:
    tally = MiningCounts()
    for one in every:
        tally.add(one, wanted=3, written=written)
    return tally


def test_counts_are_those_of_plain_loops(tmp_path: Path) -> None:
    every = queries(tmp_path)
    report = tally_of(every).report()
    assert report["queries"] == report["written"] == 25
    assert report["negatives"] == report["candidates"]["chosen"] == sum(len(one.chosen) for one in every)
    assert report["candidates"]["candidate"] == sum(len(one.rows) for one in every)
    assert report["too_few"] == sum(len(one.chosen) < 3 for one in every)
    assert report["without"] == sum(not one.chosen for one in every)
    for reason in REASONS:
        dropped = [int((one.codes == code_of(reason)).sum()) for one in every]
        assert report["dropped"][reason]["candidates"] == sum(dropped)
        assert report["dropped"][reason]["queries"] == sum(count > 0 for count in dropped)
    unwritten = tally_of(every, written=False).report()
    assert (unwritten["written"], unwritten["negatives"], unwritten["queries"]) == (0, 0, 25)
    total = sum(entry["candidates"] for entry in report["dropped"].values())
    assert total + report["candidates"]["passed"] == report["candidates"]["candidate"]


def test_scores_are_summed_by_what_became_of_them(tmp_path: Path) -> None:
    every = queries(tmp_path)
    scores = tally_of(every).report()["scores"]
    kept = np.concatenate([one.scores[one.codes == PASSED] for one in every])
    assert scores["passed"]["count"] == len(kept)
    assert np.isclose(scores["passed"]["mean"], kept.mean(dtype=np.float64))
    assert (scores["passed"]["least"], scores["passed"]["greatest"]) == (kept.min(), kept.max())
    bins = [0] * (len(SHARE_EDGES) + 1)
    for one in every:
        for share in (one.scores[one.chosen].astype(np.float64) / float(one.positive_scores.min())).tolist():
            bins[sum(share >= edge for edge in SHARE_EDGES)] += 1
    assert scores["chosen"]["shares"] == bins


def test_examples_are_drawn_whatever_the_order(tmp_path: Path) -> None:
    every = queries(tmp_path)
    shown = tally_of(every).report()["examples"]
    assert shown == tally_of(every[::-1]).report()["examples"]
    assert len(shown["known_positive"]) == EXAMPLES
    assert len({one["query_id"] for one in shown["known_positive"]}) == EXAMPLES
    assert set(shown) >= {"chosen", "known_positive", "rank"}
    for one in shown["known_positive"]:
        assert one["candidate"] == one["positive"]
        assert one["score"] == one["positive_score"]


def test_counting_goes_on_from_what_was_written_down(tmp_path: Path) -> None:
    every = queries(tmp_path)
    first = tally_of(every[:11])
    written = json.loads(json.dumps(asdict(first)))
    later = rebuilt(MiningCounts, written, tmp_path / "progress.json", remedy="mine again")
    for one in every[11:]:
        later.add(one, wanted=3, written=True)
    assert asdict(later) == asdict(tally_of(every))
