"""The models that runs start from: their records, the texts that they are timed on, and times read off a
log.
"""

from functools import partial
from pathlib import Path

import pytest

from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.config.tasks import TaskSection
from adiabat.data.records import Document
from adiabat.evaluation.measured_models import Corpus
from adiabat.experiments.sweep_trials import StartRecord, read_starts, step_seconds, write_starts
from adiabat.experiments.train_sweep import _sample, drawn_texts, encoding_speeds
from adiabat.models.towers import DualEncoder
from adiabat.results.sweep_result import Speed
from tests.experiments.sweep.training_world import tiny, write_world


def test_records_come_back_as_they_were_and_a_damaged_file_holds_none(tmp_path: Path) -> None:
    records = {
        "small, untrained": StartRecord("small", 10, Speed(3.0, 2.0, 4.0, 8, 3)),
        "untrained": StartRecord("tiny", 20),
    }
    write_starts(records, tmp_path)
    assert read_starts(tmp_path) == records
    (tmp_path / "starts.json").write_text('{"untrained": {"model": 3}}', encoding="utf-8")
    assert read_starts(tmp_path) == {}
    assert read_starts(tmp_path / "nowhere") == {}


def test_texts_for_timing_are_drawn_from_every_corpus_and_are_the_same_each_time(tmp_path: Path) -> None:
    write_world(tmp_path)
    corpus = {"data": str(tmp_path / "asked.jsonl"), "corpus": str(tmp_path / "corpus.jsonl")}
    tasks = [
        checked(TaskSection, one)
        for one in (corpus, {"data": str(tmp_path / "listed.jsonl")}, {**corpus, "name": "again"})
    ]
    corpora = [[document.text for document in Corpus.of(task).documents()] for task in tasks[:2]]
    drawn = drawn_texts(tasks, 7)
    assert drawn == drawn_texts(tasks, 7)
    assert [sum(text in corpus for text in drawn) >= 3 for corpus in corpora] == [True, True]
    assert (len(drawn), len(set(drawn_texts(tasks[:1], 7)))) == (7, 7)
    assert sorted(drawn_texts(tasks, 1000)) == sorted(corpora[0] + corpora[1])


def test_every_document_is_drawn_as_often_as_another() -> None:
    counts = dict.fromkeys("abcde", 0)
    for shift in range(5):
        # The draw depends on places alone: over all turns of five documents each stands once in each place.
        turned = "abcde"[shift:] + "abcde"[:shift]
        for text in _sample((Document(letter, letter) for letter in turned), 2):
            counts[text] += 1
    assert set(counts.values()) == {2}


def test_the_time_of_a_step_is_the_median_without_validations() -> None:
    log = [
        {"step": 0, "seconds": 9.0, "validation_loss": 1.0},
        {"step": 2, "seconds": 10.0, "loss": 1.0},
        {"step": 4, "seconds": 12.0, "loss": 1.0},
        {"step": 4, "seconds": 90.0, "validation_loss": 1.0},
        {"step": 6, "seconds": 93.0, "loss": 1.0},
    ]
    assert step_seconds(log) == 1.0
    assert step_seconds(log[:2]) == 0.5
    assert step_seconds(log[1:2]) is None
    assert step_seconds([]) is None


def test_models_take_turns_and_the_median_of_their_rounds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Begin and end of each round, of one model and the other in turns: 2 and 1 s, 8 and 1 s, 4 and 1 s.
    clock = iter([0.0, 2.0, 0.0, 1.0, 0.0, 8.0, 0.0, 1.0, 0.0, 4.0, 0.0, 1.0])
    monkeypatch.setattr("adiabat.experiments.train_sweep.perf_counter", lambda: next(clock))
    turns: list[str] = []

    def model(name: str) -> DualEncoder:
        turns.append(name)
        return tiny(name, EncoderSection())

    seen: list[tuple[int, int]] = []
    models = {name: partial(model, name) for name in ("tiny", "small")}
    found = encoding_speeds(
        models, ["a", "b", "", "ג"] * 4, rounds=3, on_progress=lambda done, total: seen.append((done, total))
    )
    assert found == {"tiny": Speed(4.0, 2.0, 8.0, 16, 3), "small": Speed(16.0, 16.0, 16.0, 16, 3)}
    assert turns == ["tiny", "small"] * 3
    assert seen == [(done, 6) for done in range(7)]
