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
from tests.dual_encoder.test_contrastive_validation import sets_of
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
    lora = counts_of(objective_of(train={"method": {"kind": "lora", "rank": 2}}))
    assert lora == (size_of() + adapters, adapters)
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
    uncut = EncoderSettings(max_tokens=99, query_prompt="ask: ")
    tower, texts = objective.towers.query.with_settings(uncut), objective.train.texts
    told = []
    for side, named in (("query", texts.queries), ("document", texts.documents)):
        lengths = tower.tokenize(named, side=side).lengths
        full, name = int((lengths >= 12).sum()), "queries" if side == "query" else "documents"
        told.append(f"{full} of {len(named)} {name} reach the limit of 12 tokens: longer ones are cut")
    assert 0 < full < len(texts.documents)
    assert [note for note in notes_of(objective) if "reach the limit" in note] == told


@pytest.mark.parametrize(("name", "told"), [("tiny", 0), ("unit", 1)])
def test_a_product_of_unit_vectors_is_told_to_be_the_cosine(name: str, told: int) -> None:
    notes = notes_of(objective_of(job={"model": name}, train={"loss": {"similarity": "dot"}}))
    said = "so that train.loss.similarity = dot is the cosine; encoder.normalize = false"
    assert sum(said in note for note in notes) == told
    assert not any(said in note for note in notes_of(objective_of(job={"model": name})))


# --- The record ---


def test_the_record_is_that_of_the_log_and_of_the_settings(tmp_path: Path) -> None:
    record = recorded(tmp_path, train={"validate_every": 5})
    rows = log_of(tmp_path / "job")
    assert record.loss == [(row["step"], row["loss"]) for row in rows if "loss" in row]
    assert [step for step, _ in record.loss] == [3, 5, 6, 9, 10, 12]
    validated = [row for row in rows if "validation_loss" in row]

    def of(name: str) -> list[tuple[int, float]]:
        return [(row["epoch"], row[f"validation_{name}"]) for row in validated]

    assert (record.validation_loss, record.validation_errors) == (of("loss"), of("errors"))
    assert {name: record.measures[name] for name in ("P@1", "RR")} == {"P@1": of("P@1"), "RR": of("RR")}
    assert (record.kind, record.unit) == ("training", "queries")
    assert (record.steps, record.epochs, record.best_epoch) == (12, 3, 3)
    assert record.settings["train"]["validate_every"] == 5
    assert record.parameters == size_of()
    assert record.passes == pytest.approx(12 * 6 / int(record.trained_on.split()[1]))
    assert record.trained_on.startswith("pairs: ")
    assert f"validated on {record.validation_pairs} queries" in record.trained_on


def test_the_result_says_whose_it_is_and_what_went_in(tmp_path: Path) -> None:
    recorded(tmp_path, train={"steps": 2}, run={"seed": 3})
    result = read_result(tmp_path / "job" / "result.json")
    assert (result.title, result.model, result.seed) == ("Training tiny on pairs", str(tmp_path / "job"), 3)
    digests = read_description(Job(tmp_path / "job"))["digests"]
    named = {"model": "tiny", "data": str(tmp_path / "pairs.jsonl"), "out": str(tmp_path / "job")}
    assert result.inputs["train"] == {**named, **{f"{name}_sha256": one for name, one in digests.items()}}


@pytest.mark.usefixtures("two_blocks")
def test_changes_are_told_of_the_weights_that_changed_adapters_merged(tmp_path: Path) -> None:
    lora = {"method": {"kind": "lora", "rank": 2}, "freeze": ["blocks[0]"], "steps": 3}
    record = recorded(tmp_path, train=lora)
    names = {layer.name for layer in record.layers}
    assert names
    assert all(".layer.1." in name and name.endswith("weight") and "lora" not in name for name in names)
    frozen = {"freeze": ["embeddings", "blocks[0]"], "steps": 3}
    apart = recorded(tmp_path / "apart", train=frozen, towers={"kind": "asymmetric"})
    assert {layer.name.partition(".")[0] for layer in apart.layers} == {"query", "document"}
