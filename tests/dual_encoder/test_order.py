"""Which pairs make each batch, from settings; and whole jobs over several sources, topics and tags."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.config.dual_training import TrainSettings
from adiabat.core.errors import DataError
from adiabat.data.batch_sampler import BatchSampler, ShuffledBatches
from adiabat.data.pair_sets import PairSet
from adiabat.dual_encoder.batches import (
    in_small_groups,
    left_out_note,
    mixture_note,
    mixture_of,
    sampler_of,
    unnamed,
)
from adiabat.dual_encoder.pair_data import read_pairs
from adiabat.dual_encoder.train import train
from tests.dual_encoder.problem import from_memory, numbered_rows, settings_of, write_rows

TOPICS = ("cooking", "travel", "chess")


def write_sources(folder: Path) -> list[dict[str, Any]]:
    """Three files of 12, 24 and 48 queries; a third of each file's queries share their answer."""
    for number, count in enumerate((12, 24, 48)):
        rows = [
            {
                "query": f"what of {number} {n}",
                "positive": f"answer {number} {n - n % 3 if n % 9 < 3 else n}",
                "topic": TOPICS[n % 3],
                "tags": [f"{TOPICS[n % 3]} {n % 6}", "other"],
            }
            for n in range(count)
        ]
        write_rows(folder / f"{number}.jsonl", rows)
    return [{"path": str(folder / f"{number}.jsonl")} for number in range(3)]


def settings_for(folder: Path, **tables: dict[str, Any]) -> TrainSettings:
    named = {"sources": write_sources(folder), "validation_fraction": 0.1, "columns": {"tag": "tags"}}
    return settings_of(data={**named, **tables.pop("data", {})}, **tables)


def pairs_of(settings: TrainSettings) -> PairSet:
    return read_pairs(None, settings.data)[0]


def order(pairs: PairSet, settings: TrainSettings, tokens: list[int] | None = None) -> BatchSampler:
    return sampler_of(settings, pairs, tokens=np.array(tokens or [1] * len(pairs)))


def batches(pairs: PairSet, settings: TrainSettings, steps: int) -> list[list[int]]:
    made = order(pairs, settings)
    return [made.rows(step).tolist() for step in range(steps)]


def test_without_mixture_and_rules_all_pairs_come_shuffled_without_a_gap(tmp_path: Path) -> None:
    write_sources(tmp_path)
    settings = settings_of()
    pairs, _ = read_pairs(str(tmp_path / "2.jsonl"), settings.data)
    expected = ShuffledBatches(len(pairs), 5, seed=0)
    assert batches(pairs, settings, 30) == [expected.rows(step).tolist() for step in range(30)]
    assert left_out_note(order(pairs, settings), steps=30) is None


@pytest.mark.parametrize("in_turn", [True, False])
def test_task_pairs_and_parallel_sentences_take_turns_or_stand_in_every_batch_in_equal_parts(
    tmp_path: Path, in_turn: bool
) -> None:
    """Translation bridging in one run (Reimers 2021)."""
    write_rows(tmp_path / "task.jsonl", numbered_rows(200))
    write_rows(tmp_path / "parallel.jsonl", [{"en": f"sentence {n}", "de": f"Satz {n}"} for n in range(60)])
    parallel = {"path": str(tmp_path / "parallel.jsonl"), "columns": {"query": "de", "positive": "en"}}
    settings = settings_of(
        data={"sources": [{"path": str(tmp_path / "task.jsonl")}, parallel]},
        mixture={"rule": "equal", "exhausted": "cycle", "one_source_per_batch": in_turn},
        train={"batch_size": 10},
    )
    pairs = pairs_of(settings)
    shares = [int(pairs.sources[batch].sum()) for batch in batches(pairs, settings, 30)]
    if in_turn:
        assert all(sorted(shares[place : place + 2]) == [0, 10] for place in range(0, 30, 2))
    else:
        assert all(abs(share - 5) <= 2 for share in shares)


def test_a_pass_over_sources_is_as_long_as_they_are_together_and_a_cap_takes_other_pairs_in_each(
    tmp_path: Path,
) -> None:
    for mixture, longest in (({}, 48), ({"cap": 10}, 10)):
        settings = settings_for(tmp_path, mixture=mixture)
        pairs = pairs_of(settings)
        made = order(pairs, settings)
        assert made.pairs == np.minimum(np.bincount(pairs.sources), longest).sum()
        steps = made.pairs // 5
        drawn = np.concatenate([made.rows(step) for step in range(3 * steps)])
        assert len(np.unique(drawn[: 5 * steps])) == 5 * steps
        assert len(np.unique(drawn[pairs.sources[drawn] == 2])) > 20


@pytest.mark.parametrize("rule", ["equal", "temperature", "weights", "proportional"])
def test_batches_of_one_source_keep_the_ratio_of_the_mixture(tmp_path: Path, rule: str) -> None:
    mixture = {"rule": rule, "one_source_per_batch": True, "exhausted": "cycle"}
    weights = (1.0, 2.0, 1.0) if rule == "weights" else (1.0, 1.0, 1.0)
    sources = [
        source | {"weight": weight} for source, weight in zip(write_sources(tmp_path), weights, strict=True)
    ]
    settings = settings_for(tmp_path, mixture=mixture, train={"batch_size": 2}, data={"sources": sources})
    pairs = pairs_of(settings)
    sources = [set(pairs.sources[batch]) for batch in batches(pairs, settings, 30)]
    assert all(len(one) == 1 for one in sources)
    wanted = mixture_of(pairs, settings).weights
    drawn = np.bincount([source for one in sources for source in one], minlength=3) / 30
    assert drawn == pytest.approx(wanted, abs=0.07)


@pytest.mark.parametrize("group", ["topic", "tag"])
def test_batches_are_of_one_topic_or_tag_but_for_the_random_share(tmp_path: Path, group: str) -> None:
    alone = {"group": {"kind": group, "random_share": 0.0}}
    settings = settings_for(tmp_path, batches=alone, train={"batch_size": 3})
    pairs = pairs_of(settings)
    made = batches(pairs, settings, len(pairs) // 3 - 1)
    by_topic, by_tag = (
        np.mean([len(set(numbers[batch])) == 1 for batch in made]) for numbers in (pairs.topics, pairs.tags)
    )
    assert (by_topic if group == "topic" else by_tag) > 0.8
    if group == "tag":
        assert by_topic > by_tag


def test_pairs_of_one_batch_share_no_text_where_that_is_asked_for(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, batches={"no_duplicates": True}, train={"batch_size": 12})
    pairs = pairs_of(settings)
    for batch in batches(pairs, settings, 12):
        assert len(set(pairs.positive[batch])) == len(set(pairs.query[batch])) == 12


def test_a_budget_of_tokens_bounds_each_batch(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, batches={"token_budget": 40}, train={"batch_size": 12, "steps": 5})
    pairs = pairs_of(settings)
    tokens = [3 + row % 11 for row in range(len(pairs))]
    made = order(pairs, settings, tokens)
    assert all(sum(tokens[row] for row in made.rows(step)) <= 40 for step in range(20))


def test_what_was_in_no_batch_is_told(tmp_path: Path) -> None:
    rows = [row | ({"positive": "the same"} if n % 2 else {}) for n, row in enumerate(numbered_rows(40))]
    write_rows(tmp_path / "alike.jsonl", rows)
    settings = settings_of(batches={"no_duplicates": True}, train={"batch_size": 4})
    pairs, _ = read_pairs(str(tmp_path / "alike.jsonl"), settings.data)
    made = order(pairs, settings)
    assert f"of {len(pairs)} pairs of a pass were in no batch" in str(left_out_note(made, steps=1))


@pytest.mark.parametrize(
    ("group", "columns"),
    [("topic", {"topic": "same"}), ("tag", {"tag": "same"}), ("tag", {"topic": "chess"})],
)
def test_one_topic_or_tag_for_all_is_refused(tmp_path: Path, group: str, columns: dict[str, str]) -> None:
    write_rows(tmp_path / "one.jsonl", numbered_rows(40, **columns))
    settings = settings_of(batches={"group": group})
    pairs, _ = read_pairs(str(tmp_path / "one.jsonl"), settings.data)
    with pytest.raises(DataError, match=f"one: .* several {group}s where batches.group is {group}, got one"):
        order(pairs, settings)


def test_pairs_of_small_topics_are_counted(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, batches={"group": "topic"}, train={"batch_size": 20})
    pairs = pairs_of(settings)
    sizes = np.bincount(pairs.topics)
    assert in_small_groups(pairs, settings) == sizes[sizes < 20].sum()
    assert in_small_groups(pairs, settings_for(tmp_path)) == 0


def unnamed_of(folder: Path, group: str, rows: list[dict[str, Any]]) -> tuple[PairSet, str | None]:
    given = [row | more for row, more in zip(numbered_rows(len(rows)), rows, strict=True)]
    write_rows(folder / "some.jsonl", given)
    settings = settings_of(batches={"group": group}, train={"batch_size": 5})
    pairs, _ = read_pairs(str(folder / "some.jsonl"), settings.data)
    return pairs, unnamed(pairs, settings)


def test_pairs_without_a_topic_are_counted_and_form_batches_of_their_own(tmp_path: Path) -> None:
    pairs, told = unnamed_of(tmp_path, "topic", [{"topic": "" if n % 3 else "chess"} for n in range(60)])
    without = [int(query.split()[1]) % 3 > 0 for query in (pairs.texts.queries[row] for row in pairs.query)]
    assert f"{sum(without)} of {len(pairs)} pairs have no topic: they form separate batches" in told
    settings = settings_of(batches={"group": {"kind": "topic", "random_share": 0.0}}, train={"batch_size": 5})
    kinds = [{without[row] for row in batch} for batch in batches(pairs, settings, len(pairs) // 5)]
    assert sum(kind == {True} for kind in kinds) == sum(without) // 5


def test_pairs_without_a_tag_are_told_by_whether_there_are_topics(tmp_path: Path) -> None:
    _, told = unnamed_of(tmp_path, "tag", [{"tag": "" if n % 3 else "ends"} for n in range(60)])
    assert str(told).endswith("pairs have no tag: they form separate batches, as if they shared one tag")
    both = [{"tag": "" if n % 3 else "ends", "topic": n % 2} for n in range(60)]
    _, told = unnamed_of(tmp_path, "tag", both)
    assert str(told).endswith("as if they shared one tag in each topic")
    assert unnamed_of(tmp_path, "none", [{}] * 60)[1] is None
    assert unnamed_of(tmp_path, "topic", [{"topic": n % 2} for n in range(60)])[1] is None


@pytest.mark.parametrize("exhausted", ["drop", "cycle"])
def test_shares_drawn_of_each_source_are_told_beside_those_asked_for(tmp_path: Path, exhausted: str) -> None:
    mixture = {"rule": "equal", "exhausted": exhausted}
    settings = settings_for(tmp_path, mixture=mixture, batches={"no_duplicates": True})
    pairs = pairs_of(settings)
    steps = 2 * len(pairs) // 5 + 3
    made = order(pairs, settings)
    drawn = Counter(int(pairs.sources[row]) for batch in batches(pairs, settings, steps) for row in batch)
    told = mixture_note(made, pairs, settings, steps=steps)
    shares = [(drawn[number], 100 * drawn[number] / drawn.total()) for number in range(3)]
    wanted = [f"{count:,} ({share:.1f} %, asked for 33.3 %)" for count, share in shares]
    assert told is not None
    assert [part.rpartition(".jsonl ")[2] for part in told.split("; ")] == wanted
    assert mixture_note(made, pairs, settings, steps=0) is None


def test_of_one_source_no_shares_are_told(tmp_path: Path) -> None:
    write_sources(tmp_path)
    settings = settings_of(mixture={"cap": 7})
    pairs, _ = read_pairs(str(tmp_path / "2.jsonl"), settings.data)
    assert mixture_note(order(pairs, settings), pairs, settings, steps=3) is None


def test_rules_that_leave_no_batch_leave_no_directory(tmp_path: Path) -> None:
    job = {"model": "tiny", "out": str(tmp_path / "job")}
    short = {"batches": {"token_budget": 5}, "train": {"batch_size": 4, "steps": 2}}
    settings = settings_for(tmp_path, job=job, **short)
    with pytest.raises(DataError, match=r"must fill a batch of 4 under the rules of \[batches\], got none"):
        train(from_memory, settings)
    assert not (tmp_path / "job").exists()
