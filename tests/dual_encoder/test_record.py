"""What a training run leaves for readers."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.dual_encoder.train_record import counts_of, notes_of
from adiabat.models.embedding_head import EncoderSettings
from adiabat.results.record import read_result
from adiabat.results.training_record import TrainingRecord
from adiabat.runs.run_config import Job, read_description
from tests.dual_encoder.problem import HELD_OUT, job_settings, model, objective_of, run, write_problem
from tests.dual_encoder.test_objective_validation import sets_of
from tests.jobs import log_of


def recorded(folder: Path, **tables: dict[str, Any]) -> TrainingRecord:
    return run(job_settings(write_problem(folder), folder / "job", **tables)).training


# --- Counts ---


def size_of(*, width: int = 16) -> int:
    return sum(weights.numel() for weights in model(width=width).query.parameters())


@pytest.mark.parametrize(
    ("tables", "towers", "more"),
    [
        ({}, 1, 0),
        ({"towers": {"kind": "asymmetric"}}, 2, 0),
        ({"towers": {"kind": "shared_projection", "projection_width": 5}}, 2, 16 * 5),
        ({"towers": {"kind": "asymmetric", "projection_width": 5}}, 2, 2 * 16 * 5),
        ({"train": {"loss": {"temperature": "learned"}}}, 1, 1),
    ],
    ids=str,
)
def test_each_parameter_counts_once(tables: dict[str, Any], towers: int, more: int) -> None:
    parameters, trained = counts_of(objective_of(**tables))
    pooler = 16 * 16 + 16
    assert parameters == towers * size_of() + more
    assert trained == parameters - towers * pooler


@pytest.mark.usefixtures("two_blocks")
def test_what_is_frozen_or_left_to_adapters_is_not_trained() -> None:
    adapters = 2 * 2 * (4 * 32 + 48 + 48)
    assert counts_of(objective_of(train={"method": {"kind": "lora", "rank": 2}})) == (
        size_of() + adapters,
        adapters,
    )
    frozen = objective_of(towers={"kind": "asymmetric", "frozen": "document"})
    assert counts_of(frozen) == (2 * size_of(), size_of() - 16 * 17)


# --- Notes ---


def test_ordinary_data_need_one_note_on_negatives_and_none_where_all_or_none_list_some() -> None:
    sets = sets_of(*(row for row in HELD_OUT if row[0] != "what barks"))
    listing = "7 of 8 queries list negatives; the others have only in-batch negatives"
    assert notes_of(objective_of(sets=sets)) == (listing,)
    assert notes_of(objective_of(sets=sets, train={"loss": {"negatives_per_query": 0}})) == ()
    train, validation = sets_of(("what is new", ["a cat", "news"], ["rust"]))
    assert notes_of(objective_of(sets=(validation, validation))) == ()
    assert notes_of(objective_of(sets=(train, validation))) == (listing,)


def test_texts_that_are_cut_are_counted_on_the_side_they_are_on() -> None:
    objective = objective_of(job={"model": "short"})
    tower, texts = (
        objective.towers.query.with_settings(EncoderSettings(max_tokens=99, query_prompt="ask: ")),
        objective.train.texts,
    )
    queries, documents = (
        tower.tokenize(texts.queries, side="query"),
        tower.tokenize(texts.documents, side="document"),
    )
    full = [int((tokens.lengths >= 12).sum()) for tokens in (queries, documents)]
    assert 0 < full[1] < len(documents)
    assert [note for note in notes_of(objective) if "reach the limit" in note] == [
        f"{full[0]} of {len(queries)} queries reach the limit of 12 tokens: longer ones are cut",
        f"{full[1]} of {len(documents)} documents reach the limit of 12 tokens: longer ones are cut",
    ]


@pytest.mark.parametrize(("name", "told"), [("tiny", 0), ("unit", 1)])
def test_a_product_of_unit_vectors_is_told_to_be_the_cosine(name: str, told: int) -> None:
    notes = notes_of(objective_of(job={"model": name}, train={"loss": {"similarity": "dot"}}))
    said = (
        "embeddings have unit length, so that train.loss.similarity = dot is the cosine; "
        "encoder.normalize = false lets lengths differ"
    )
    assert notes.count(said) == told
    assert said not in notes_of(objective_of(job={"model": name}))


# --- The record ---


def test_the_record_is_that_of_the_log_and_of_the_settings(tmp_path: Path) -> None:
    record = recorded(tmp_path, train={"validate_every": 5})
    rows = log_of(tmp_path / "job")
    assert record.loss == [(row["step"], row["loss"]) for row in rows if "loss" in row]
    assert [step for step, _ in record.loss] == [3, 5, 6, 9, 10, 12]
    assert record.validation_loss == [
        (row["epoch"], row["validation_loss"]) for row in rows if "validation_loss" in row
    ]
    assert record.validation_errors == [
        (row["epoch"], row["validation_errors"]) for row in rows if "validation_errors" in row
    ]
    for name in ("P@1", "RR"):
        assert record.measures[name] == [
            (row["epoch"], row[f"validation_{name}"]) for row in rows if "validation_loss" in row
        ]
    assert (record.kind, record.unit, record.steps, record.epochs, record.best_epoch) == (
        "training",
        "queries",
        12,
        3,
        3,
    )
    assert record.settings["train"]["validate_every"] == 5
    assert record.parameters == size_of()
    assert record.passes == pytest.approx(12 * 6 / int(record.trained_on.split()[1]))
    assert record.trained_on.startswith("pairs: ")
    assert f"validated on {record.validation_pairs} queries" in record.trained_on


def test_the_result_says_whose_it_is_and_what_went_in(tmp_path: Path) -> None:
    recorded(tmp_path, train={"steps": 2}, run={"seed": 3})
    result = read_result(tmp_path / "job" / "result.json")
    assert (result.title, result.model, result.seed) == ("Training tiny on pairs", str(tmp_path / "job"), 3)
    digests = {
        f"{name}_sha256": digest
        for name, digest in read_description(Job(tmp_path / "job"))["digests"].items()
    }
    assert result.inputs["train"] == {
        "model": "tiny",
        "data": str(tmp_path / "pairs.jsonl"),
        "out": str(tmp_path / "job"),
        **digests,
    }


@pytest.mark.usefixtures("two_blocks")
def test_changes_are_told_of_the_weights_that_changed_adapters_merged(tmp_path: Path) -> None:
    record = recorded(
        tmp_path, train={"method": {"kind": "lora", "rank": 2}, "freeze": ["blocks[0]"], "steps": 3}
    )
    names = {layer.name for layer in record.layers}
    assert names
    assert all(".layer.1." in name and name.endswith("weight") and "lora" not in name for name in names)
    apart = recorded(
        tmp_path / "apart",
        train={"freeze": ["embeddings", "blocks[0]"], "steps": 3},
        towers={"kind": "asymmetric"},
    )
    assert {layer.name.partition(".")[0] for layer in apart.layers} == {"query", "document"}
