"""Training on a stream: what its shards hold, how it ends, what is kept, and what is refused."""

import json
import shutil
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.config.dual_training import TrainSettings
from adiabat.core.errors import DataError, InterruptionError, JobError
from adiabat.data.batch_sampler import shard_seed
from adiabat.data.examples import stream_examples
from adiabat.data.pair_sets import PairSet, joined
from adiabat.data.records import ExampleSet
from adiabat.dual_encoder.batches import sampler_of
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.stream_shards import ROWS, read_rows
from adiabat.dual_encoder.train_checks import require_ready
from adiabat.results.training_record import TrainingRecord
from tests.dual_encoder.problem import FROZEN, numbered_rows, pair_sets, settings_of, write_rows
from tests.dual_encoder.problem import prepared_objective as objective_of
from tests.dual_encoder.problem import run as run_job
from tests.dual_encoder.streamed import stream_settings
from tests.jobs import everything, interrupt_at, log_of


def run(settings: TrainSettings, *, resume: bool = False) -> TrainingRecord:
    return run_job(settings, resume=resume).training


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "stream" / "shards.jsonl").read_text().splitlines()]


def queries(objective: PairContrast, step: int) -> list[str]:
    pairs = objective.at(step).pairs
    return pairs.texts.queries.take(pairs.query[objective.rows(step)])


def one_source(folder: Path, rows: list[dict[str, Any]], **tables: dict[str, Any]) -> TrainSettings:
    """A job over one file."""
    write_rows(folder / "one.jsonl", rows)
    data = {"sources": [{"path": str(folder / "one.jsonl")}], **tables.pop("data", {})}
    mixture = {"rule": "proportional", **tables.pop("mixture", {})}
    return stream_settings(folder, folder / "job", data=data, mixture=mixture, **tables)


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    given = numbered_rows(count, **more)
    return [{**row, "negative": f"n {n}"} for n, row in enumerate(given)]


# --- What shards hold ---


@pytest.mark.parametrize("exhausted", ["drop", "cycle"])
@pytest.mark.parametrize("shard", [20, 300])
def test_each_shard_is_trained_on_once_as_its_row_says(tmp_path: Path, shard: int, exhausted: str) -> None:
    data, mixture = {"stream": {"shard_size": shard}}, {"exhausted": exhausted}
    objective = objective_of(stream_settings(tmp_path, tmp_path / "job", data=data, mixture=mixture))
    drawn = [Counter(queries(objective, step)) for step in range(40)]
    read = {
        n: [example.query for example in stream_examples(tmp_path / f"{n}.jsonl").examples] for n in range(3)
    }
    for row in objective.stream.rows[:-1]:
        batches = sum(drawn[row.first : row.first + row.steps], Counter())
        for source, part in enumerate(row.parts):
            first, texts = part.start.mark.rows, read[source]
            taken = {texts[(first + n) % len(texts)] for n in range(part.given)}
            mine = {query: n for query, n in batches.items() if query.startswith(f"what of {source} ")}
            assert set(mine) <= taken
            assert sum(mine.values()) == row.drawn[source]
        assert batches.total() == sum(row.drawn) == 4 * row.steps
        most = max(part.asked / max(1, part.given) for part in row.parts) if exhausted == "cycle" else 1.0
        # Two pairs of a query that has two answers are no repetition.
        assert max(batches.values()) <= 2 * np.ceil(most)


def test_batches_of_a_shard_are_planned_as_those_of_data_that_are_all_there(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "batches": {"group": {"kind": "topic", "random_share": 0.3}, "no_duplicates": True}
    }
    settings = stream_settings(tmp_path, tmp_path / "job", data={"stream": {"shard_size": 63}}, **tables)
    objective = objective_of(settings)
    # 21 of each source; the smallest has 12.
    sets = [
        ExampleSet(str(n), list(stream_examples(tmp_path / f"{n}.jsonl").examples)[:21]) for n in range(3)
    ]
    whole: PairSet = joined(pair_sets(*sets))
    plain = settings_of(
        data={"sources": [source.model_dump(exclude_none=True) for source in settings.data.sources]},
        mixture={"exhausted": "drop"},
        **{**tables, "train": {"batch_size": 4}},
    )
    # A shard has a seed that no run may be given.
    seeded = plain.run.model_copy(update={"seed": shard_seed(0, 0)})
    expected = sampler_of(plain.model_copy(update={"run": seeded}), whole)
    assert objective.sampler.batches(0) == expected.batches(0) > 8
    for step in range(expected.batches(0)):
        np.testing.assert_array_equal(objective.rows(step), expected.rows(step))
    assert objective.train.digest() == whole.digest()


def test_a_file_that_is_sorted_by_topic_has_shards_of_one(tmp_path: Path) -> None:
    sorted_rows = [row | {"topic": f"topic {n // 30}"} for n, row in enumerate(rows(90))]
    objective = objective_of(one_source(tmp_path, sorted_rows, batches={"group": "topic"}))
    assert {len(set(objective.at(step).pairs.topics)) for step in range(20)} == {1, 2}
    ungrouped = one_source(tmp_path, rows(90), batches={"group": "topic"})
    with pytest.raises(DataError, match="several topics where batches.group is topic, got one"):
        objective_of(ungrouped)


def test_a_curriculum_goes_on_from_shard_to_shard(tmp_path: Path) -> None:
    grouped = [row | {"topic": f"topic {n % 2}"} for n, row in enumerate(rows(400))]
    group = {"kind": "topic", "random_share": 0.0, "curriculum_steps": 100}
    shards = {"stream": {"shard_size": 100}}
    objective = objective_of(one_source(tmp_path, grouped, batches={"group": group}, data=shards))
    alike = [len(set(objective.at(step).pairs.topics[objective.rows(step)])) == 1 for step in range(100)]
    assert np.mean(alike[:25]) + 0.3 < np.mean(alike[-25:])
    assert np.mean(alike[-25:]) > 0.8


def test_a_shard_has_as_many_steps_as_its_plan_within_a_budget_of_tokens(tmp_path: Path) -> None:
    objective = objective_of(stream_settings(tmp_path, tmp_path / "job", batches={"token_budget": 60}))
    for step in range(30):
        plan = objective.at(step)
        assert plan.texts.tokens(plan.pairs)[objective.rows(step)].sum() <= 60
    starts = [row.first for row in objective.stream.rows]
    assert starts == np.cumsum([0, *(row.steps for row in objective.stream.rows)])[:-1].tolist()


def test_a_rest_that_makes_no_batch_is_passed_over(tmp_path: Path) -> None:
    objective = objective_of(one_source(tmp_path, rows(43)))
    for step in range(25):
        objective.rows(step)
    read = [(row.pairs, row.steps, row.left) for row in objective.stream.rows][:4]
    assert read == [(20, 5, 0), (20, 5, 0), (3, 0, 3), (20, 5, 0)]


def test_shards_without_a_batch_are_refused(tmp_path: Path) -> None:
    alike = [{"query": f"q {n}", "positive": "the same"} for n in range(50)]
    with pytest.raises(DataError, match=r"one: .* batch of 4 .* \[batches\], but its 20 pairs fill none"):
        objective_of(one_source(tmp_path, alike, batches={"no_duplicates": True}))
    objective = objective_of(one_source(tmp_path, [*rows(20), *alike], batches={"no_duplicates": True}))
    with pytest.raises(DataError, match="its 20 pairs fill none; raise data.stream.shard_size"):
        objective.rows(5)


def test_queries_without_negatives_are_refused_where_the_loss_needs_them(tmp_path: Path) -> None:
    lacking = [*rows(20), {"query": "bare", "positive": "p"}, *rows(40)[20:]]
    objective = objective_of(one_source(tmp_path, lacking, train={"loss": "triplet"}))
    objective.rows(4)
    with pytest.raises(DataError, match="must list a negative if train.loss is triplet .* for 1 of 20"):
        objective.rows(5)


# --- Jobs ---


def test_the_record_says_what_was_read_and_drawn(tmp_path: Path) -> None:
    record = run(stream_settings(tmp_path, tmp_path / "job"))
    assert record.trained_on == "0 + 1 + 2: 96 pairs of a stream, validated on 7 queries"
    assert record.passes is None
    assert record.stop_reason == "the limit of 24 steps was reached"
    shards = rows_of(tmp_path / "job")
    note = next(note for note in record.notes if note.startswith("pairs drawn of each source: "))
    assert any(f"read in {len(shards)} shards" in note for note in record.notes)
    objective = objective_of(stream_settings(tmp_path, tmp_path / "again"))
    drawn = Counter(query.split()[2] for step in range(24) for query in queries(objective, step))
    for source in range(3):
        count = drawn[str(source)]
        assert f"{source}.jsonl {count} ({100 * count / 96:.1f} %, asked for 33.3 %)" in note
    left = sum(row["left"] for row in shards[:-1])
    told = [note for note in record.notes if note.endswith("pairs were in no batch of their shard")]
    assert told[0].startswith(f"{left} of ")


@pytest.mark.parametrize("validate_every", [4, 100])
def test_a_run_stops_where_the_first_source_runs_out(tmp_path: Path, validate_every: int) -> None:
    mixture, train = {"exhausted": "stop"}, {"validate_every": validate_every}
    settings = stream_settings(tmp_path, tmp_path / "job", mixture=mixture, train=train)
    record = run(settings)
    assert record.stop_reason.endswith("0.jsonl ran out, and mixture.exhausted is stop")
    last = rows_of(tmp_path / "job")[-1]
    assert record.steps == last["first"] + last["steps"] == 10
    assert last["last"]
    assert log_of(tmp_path / "job")[-1]["step"] == record.steps
    assert "validation_loss" in log_of(tmp_path / "job")[-1]
    before = everything(tmp_path / "job")
    assert run(settings, resume=True).stop_reason == record.stop_reason
    assert everything(tmp_path / "job") == before


def test_a_run_stops_behind_a_shard_whose_end_nobody_saw(tmp_path: Path) -> None:
    settings = one_source(tmp_path, rows(40), mixture={"exhausted": "stop"})
    assert run(settings).steps == run(settings, resume=True).steps == 10
    assert [row["pairs"] for row in rows_of(tmp_path / "job")] == [20, 20, 0]


def test_shards_that_no_checkpoint_needs_are_removed(tmp_path: Path) -> None:
    run(stream_settings(tmp_path, tmp_path / "job", run={"checkpoint_seconds": 1e-6}, towers=FROZEN))
    # Those of the last checkpoint but one are needed until the last one is whole.
    numbers = [row["shard"] for row in rows_of(tmp_path / "job") if row["first"] + row["steps"] > 22]
    assert numbers[0] > 3
    for folder in ("stream", "frozen"):
        kept = sorted(path.name for path in (tmp_path / "job" / folder).glob("shard-*"))
        assert kept == [f"shard-{number:06d}" for number in numbers]


def cut_short(settings: TrainSettings, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(step, patch)
        with pytest.raises(InterruptionError):
            run(settings)


@pytest.mark.parametrize("damaged", [False, True])
def test_shards_that_were_lost_or_damaged_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    run(stream_settings(tmp_path, tmp_path / "whole"))
    settings = stream_settings(tmp_path, tmp_path / "cut")
    cut_short(settings, 12, monkeypatch)
    for shard in (tmp_path / "cut" / "stream").glob("shard-*"):
        if damaged:
            content = bytearray((shard / "documents.arrow").read_bytes())
            content[len(content) // 2] ^= 1
            (shard / "documents.arrow").write_bytes(content)
        else:
            shutil.rmtree(shard)
    told = pytest.warns(UserWarning, match=r"documents.arrow must be undamaged, .*; the pairs are read")
    with told if damaged else nullcontext():
        run(settings, resume=True)
    assert everything(tmp_path / "cut") == everything(tmp_path / "whole")


def test_a_shard_that_comes_out_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = stream_settings(tmp_path, tmp_path / "job")
    cut_short(settings, 12, monkeypatch)
    shutil.rmtree(max((tmp_path / "job" / "stream").glob("shard-*")))
    changed = tmp_path / "2.jsonl"
    changed.write_text(changed.read_text().replace("what", "whom"))
    with pytest.raises(DataError, match=r"0 \+ 1 \+ 2: shard 2 must hold .*, got other pairs; restore"):
        run(settings, resume=True)


def test_what_is_wrong_with_the_first_shard_is_told_before_a_directory_is_made(tmp_path: Path) -> None:
    settings = stream_settings(tmp_path, tmp_path / "job")
    (tmp_path / "1.jsonl").write_text('{"query": "a", "positive": ""}\n')
    with pytest.raises(DataError, match=r"1.jsonl:1: \"positive\" must not be empty"):
        run(settings)
    assert not (tmp_path / "job").exists()


def test_a_folder_that_is_no_table_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    (tmp_path / "beir" / "queries.jsonl").write_text("{}")
    settings = one_source(tmp_path, [], data={"sources": [{"path": str(tmp_path / "beir")}]})
    with pytest.raises(DataError, match="beir must hold one example a row with data.stream, got a BEIR"):
        require_ready(settings, resume=False)


def test_validation_queries_that_are_also_trained_on_are_told(tmp_path: Path) -> None:
    settings = stream_settings(tmp_path, tmp_path / "job")
    held = [{"query": f"what of 2 {n}", "positive": f"out {n}"} for n in (0, 1, 2, 30, 99)]
    write_rows(tmp_path / "held.jsonl", held)
    told = "up to 3 of 5 validation queries are also trained on in one shard"
    assert any(told in note for note in run(settings).notes)


def test_a_row_of_a_shard_with_a_key_that_no_row_has_is_refused_by_name(tmp_path: Path) -> None:
    """As where a flipped bit makes another word of the key that holds the checksum."""
    (tmp_path / ROWS).write_text('{"shard": 0, "chec+sum": "0123456789abcdef"}\n', encoding="utf-8")
    with pytest.raises(JobError, match=ROWS):
        read_rows(tmp_path / ROWS)
