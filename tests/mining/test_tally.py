"""Counting: sums over queries against plain loops, the draw of examples, going on from what was written."""

import json
from pathlib import Path

import numpy as np

from adiabat.data.records import Example
from adiabat.mining.filters import PASSED, REASONS, code_of
from adiabat.mining.miner import MinedQuery
from adiabat.mining.mining_counts import EXAMPLES, SHARE_EDGES, MiningCounts
from tests.mining.world import mined, miner_of

CORPUS = {f"d{number}": f"word{number % 5} word{number % 7} common text {number}" for number in range(60)}


def queries(folder: Path, count: int = 25) -> list[MinedQuery]:
    examples = [Example(f"x{number}", f"word{number % 5} common {number}", (f"d{number}",)) for number in range(count)]
    return mined(miner_of(folder, examples, corpus=CORPUS, depth=30, skip_first=1, relative_margin=0.1))


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
    later = MiningCounts.from_json(json.loads(json.dumps(first.to_json())))
    for one in every[11:]:
        later.add(one, wanted=3, written=True)
    assert later.to_json() == tally_of(every).to_json()
