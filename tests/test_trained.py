"""What a job was trained on is not announced as proof: counted in evaluate, suites and compare, whatever
happens to the record.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.shared import EvaluateSettings
from adiabat.config.tasks import SuiteSettings
from adiabat.data.text_hashes import TrainedTexts
from adiabat.models.model_names import trained_by
from adiabat.report.verdict_words import SENTENCES
from adiabat.results.evaluation_result import TrainedOn
from adiabat.results.record import read_result, write_result
from adiabat.results.verdict import Reason
from adiabat.store.vector_store import Store
from tests.commands import DOCUMENTS, PAIRS, Run, evaluate, lines, tune, write_world
from tests.commands import command as command
from tests.commands import here as here
from tests.pages import no_page as no_page
from tests.pages import real_pages as real_pages
from tests.stats.brute_force import all_scores

QUICK = EvaluateSettings.model_validate({"measure": {"resamples": 100}})
OTHERS = [{"query": f"other {number}", "pos": [f"d{number}"]} for number in range(20)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and jobs that were tuned on its pairs and on ten of them."""
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    lines(folder / "others.jsonl", OTHERS)
    # Of ten queries one was trained on, and of nine documents that only trained queries have, none is left.
    lines(folder / "tenth.jsonl", [*OTHERS[:9], PAIRS[0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lines(folder / "ten.jsonl", PAIRS[:10])
        for data, job in (("pairs.jsonl", "job"), ("ten.jsonl", "ten")):
            options = {
                "learning_rate": 1e-3,
                "keep": "last",
                "max_epochs": 2,
                "batches_per_epoch": 2,
                "validation_fraction": 0.4,
            }
            adiabat.tune("model", "store", data, job, **options)
    return folder


def counted(found: TrainedOn) -> tuple[int, int, int, int | None, int | None]:
    return found.queries, found.trained_queries, found.relevant, found.trained_relevant, found.answered


@pytest.mark.usefixtures("real_pages")
def test_queries_that_a_job_was_trained_on_get_no_verdict_on_terminal_page_and_in_the_result(
    here: Path, command: Run
) -> None:
    said = command(*evaluate("pairs.jsonl", "--baseline", "model", model="job"))
    result = read_result(here / "new" / "result.json")
    assert [counted(found) for found in result.datasets[0].trained] == [(20, 20, 20, 20, 20)]
    assert {change.verdict for change in result.datasets[0].changes} == {"undecided"}
    assert result.datasets[0].main_change().reasons[0] == Reason.TRAINED_ON
    sentence = (
        "job was trained or validated on 20 of 20 queries and 20 of their 20 relevant "
        "documents, which answer 20 of the queries"
    )
    page = (here / "new" / "report.html").read_text()
    assert sentence in said.err
    assert sentence in page
    assert f"is undecided ({SENTENCES[Reason.TRAINED_ON]}" in page
    assert "better" not in said.err


def test_a_job_counts_answers_apart_from_queries_and_a_tenth_is_still_proof(here: Path) -> None:
    for data, queries in (("others.jsonl", 0), ("tenth.jsonl", 1)):
        result = adiabat.evaluate("job", "store", data, baseline="model", settings=QUICK)
        (found,) = result.datasets[0].trained
        # Every document answers a query that was trained or validated on.
        assert counted(found)[1:] == (queries, found.relevant, found.relevant, found.queries)
        assert Reason.TRAINED_ON not in result.datasets[0].main_change().reasons
    lines(here / "fifth.jsonl", [*OTHERS[:4], PAIRS[0]])
    change = (
        adiabat.evaluate("job", "store", "fifth.jsonl", baseline="model", settings=QUICK)
        .datasets[0]
        .main_change()
    )
    assert (change.verdict, change.reasons[0]) == ("undecided", Reason.TRAINED_ON)


def test_what_is_left_without_queries_and_answers_that_were_trained_on_is_measured_apart(
    here: Path, command: Run
) -> None:
    # Documents d0 to d9 answer queries that were trained on; of seventeen new queries nine ask for one of
    # them.
    lines(
        here / "mixed.jsonl", [{"query": f"new {number}", "pos": [f"d{number}"]} for number in range(1, 18)]
    )
    said = command(*evaluate("mixed.jsonl", "--baseline", "model", model="ten"))
    (found,) = read_result(here / "new" / "result.json").datasets
    assert counted(found.trained[0]) == (17, 0, 17, 9, 9)
    lines(
        here / "rest.jsonl", [{"query": f"new {number}", "pos": [f"d{number}"]} for number in range(10, 18)]
    )
    alone = adiabat.evaluate("ten", "store", "rest.jsonl", baseline="model").datasets[0]
    assert [(part.name, part.queries) for part in found.parts] == [
        ("all queries", 17),
        ("new documents", 8),
        ("seen documents", 9),
    ]
    assert found.parts[1].change.after == alone.main_change().after
    assert found.parts[0].change == found.main_change()
    assert (alone.parts, alone.left_out) == ([], 0)
    # Where the record of the baseline's job is gone, nobody knows which queries are left.
    assert command(*tune("others.jsonl", "--set", "tune.negatives=hardest", out="lost")).code == 0
    (here / "lost" / "trained.bin").unlink()
    assert adiabat.evaluate("ten", "store", "mixed.jsonl", baseline="lost").datasets[0].parts == []
    told = " ".join(said.err.split())
    assert "queries with new and with seen documents" in told


def test_a_verdict_rests_on_queries_with_new_documents_where_there_are_fifty(
    here: Path, command: Run
) -> None:
    new = [{"query": f"fresh {number}", "pos": [f"d{10 + number % 10}"]} for number in range(60)]
    seen = [
        {"query": f"again {number}", "pos": [f"d{number % 10}", f"d{10 + number % 10}"]}
        for number in range(30)
    ]
    lines(here / "both.jsonl", [*seen, PAIRS[0], *new, PAIRS[3]])
    said = command(*evaluate("both.jsonl", "--baseline", "model", model="ten"))
    result = read_result(here / "new" / "result.json")
    (found,) = result.datasets
    lines(here / "new.jsonl", new)
    (alone,) = adiabat.evaluate("ten", "store", "new.jsonl", baseline="model").datasets
    assert (found.left_out, found.queries) == (2, 60)
    assert [(part.name, part.queries) for part in found.parts] == [
        ("new documents", 60),
        ("seen documents", 30),
    ]
    assert found.changes == alone.changes
    assert {shown.query.split()[0] for shown in result.examples} <= {"fresh"}
    told = " ".join(said.err.split())
    assert "2 queries that a model was trained on were left out" in told
    assert "on queries with new documents" in told
    compared = adiabat.compare("new/scores/baseline", "new/scores/model")
    (change,) = (pairing.change for pairing in compared.pairings)
    assert (change.after, change.p, change.verdict) == (
        alone.main_change().after,
        alone.main_change().p,
        alone.main_change().verdict,
    )
    assert any(
        "compared on 60 queries with new documents, not on 30 queries" in note for note in compared.notes
    )


def test_without_a_baseline_all_queries_are_measured(here: Path) -> None:
    lines(
        here / "mixed.jsonl", [{"query": f"new {number}", "pos": [f"d{number % 20}"]} for number in range(70)]
    )
    (found,) = adiabat.evaluate("ten", "store", "mixed.jsonl", resamples=100).datasets
    assert (found.queries, found.parts, found.left_out) == (70, [], 0)


def test_a_query_of_a_part_of_its_own_is_counted(here: Path) -> None:
    rows = [{"query": f"new {number}", "pos": [f"d{10 + number % 10}"]} for number in range(60)]
    lines(here / "one.jsonl", [*rows, {"query": "seen", "pos": ["d1"]}])
    (found,) = adiabat.evaluate("ten", "store", "one.jsonl", baseline="model", resamples=100).datasets
    assert [(part.name, part.queries) for part in found.parts] == [
        ("new documents", 60),
        ("seen documents", 1),
    ]


def test_queries_that_nearly_equal_those_of_training_are_counted_and_named_in_the_headline(
    here: Path, command: Run
) -> None:
    lines(
        here / "near.jsonl",
        [{"query": f"ＱＵＥＳＴＩＯＮ {number}?", "pos": [f"d{10 + number}"]} for number in range(10)],
    )
    said = command(*evaluate("near.jsonl", "--baseline", "model", model="ten"))
    (overlap,) = read_result(here / "new" / "result.json").datasets[0].trained
    assert (overlap.trained_queries, overlap.near_queries) == (0, 10)
    told = " ".join(said.err.split())
    assert SENTENCES[Reason.NEAR_DUPLICATES] in told
    assert "near duplicates of 10 others" in told


def test_where_all_queries_share_documents_with_training_the_residual_collection_decides(
    here: Path, command: Run
) -> None:
    """Against a store without these documents, and plain ranks."""
    tied = [
        {"query": f"tied {number}", "pos": [f"d{number % 10}", f"d{10 + number % 10}"]}
        for number in range(60)
    ]
    lines(here / "tied.jsonl", [*tied, {"query": "only seen", "pos": ["d1"]}])
    lines(here / "rest_corpus.jsonl", DOCUMENTS[10:])
    lines(here / "residual.jsonl", [{**row, "pos": row["pos"][1:]} for row in tied])
    command(*evaluate("tied.jsonl", "--baseline", "model", model="ten"))
    (found,) = read_result(here / "new" / "result.json").datasets
    others = adiabat.embed("model", "rest_corpus.jsonl", out="rest_store")
    (alone,) = adiabat.evaluate("ten", others, "residual.jsonl", baseline="model").datasets
    assert [(part.name, part.queries) for part in found.parts] == [
        ("residual collection", 60),
        ("seen documents", 61),
    ]
    assert found.changes == alone.changes
    store = Store.open("store")
    model = adiabat.load("ten")
    table = all_scores(model, store, [row["query"] for row in tied])
    above = sum(max(scores[:10]) >= scores[10 + number % 10] for number, scores in enumerate(table))
    assert found.parts[0].above == above > 0
    # Examples are rankings without these documents too, of a job that moves some.
    short = {"max_epochs": 2, "batches_per_epoch": 4, "validation_fraction": 0.4}
    adiabat.tune("model", "store", "ten.jsonl", "far", learning_rate=0.03, keep="last", **short)
    shown = adiabat.evaluate("far", "store", "tied.jsonl", baseline="model", resamples=100).examples
    hits = [hit for example in shown for hit in (*example.before, *example.after)]
    assert hits
    assert {hit.doc_id for hit in hits} <= {f"d{number}" for number in range(10, 20)}
    assert any(hit.relevant for hit in hits)


def test_a_baseline_that_is_a_job_is_counted_too_and_so_is_a_job_that_goes_on_from_a_job(
    here: Path, command: Run
) -> None:
    result = adiabat.evaluate("model", "store", "pairs.jsonl", baseline="job/model", settings=QUICK)
    assert [(found.model, found.trained_queries) for found in result.datasets[0].trained] == [
        ("job/model", 20)
    ]
    assert result.datasets[0].main_change().reasons == [Reason.TRAINED_ON]
    assert (
        command(*tune("others.jsonl", "--set", "tune.negatives=hardest", model="job", out="second")).code == 0
    )
    known = trained_by("second")
    assert known is not None
    assert known.holds_queries(["question 3", "other 3", "never asked"]).tolist() == [True, True, False]
    bare = Path(shutil.copytree(here / "second", here / "bare"))
    (bare / "config.toml").unlink()
    found = trained_by(bare / "model")
    assert found is not None
    assert found.queries.tolist() == known.queries.tolist()


def test_jobs_that_train_both_towers_and_streams_are_counted(here: Path) -> None:
    texts = {str(document["_id"]): document["text"] for document in DOCUMENTS}
    lines(
        here / "train.jsonl",
        [{"query": pair["query"], "positive": texts[pair["pos"][0]]} for pair in PAIRS[:12]],
    )
    lines(
        here / "dev.jsonl",
        [{"query": pair["query"], "positive": texts[pair["pos"][0]]} for pair in PAIRS[12:16]],
    )
    for out, stream in (("whole", {}), ("windows", {"stream": {"shard_size": 6}})):
        tables: dict[str, Any] = {
            "job": {"model": str(here / "model"), "data": "train.jsonl", "out": out},
            "data": {"validation": "dev.jsonl", "cache": "cache", **stream},
            "train": {"batch_size": 3, "steps": 3, "validate_every": 2},
        }
        adiabat.train(settings=checked(TrainSettings, tables))
        known = trained_by(out)
        assert known is not None
        assert not known.unknown
        # Of a stream two windows of six, of which three steps of three begin the second.
        expected = [number < 16 for number in range(20)]
        assert known.holds_queries([pair["query"] for pair in PAIRS]).tolist() == expected
        documents = known.holds_documents([texts[pair["pos"][0]] for pair in PAIRS], are_texts=True)
        assert documents is not None
        assert documents.tolist() == expected
        assert known.holds_documents(["d0"], are_texts=False) is None


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "swap", "before"])
def test_a_record_that_is_missing_or_damaged_is_said_to_be_unknown(
    here: Path, command: Run, damage: str
) -> None:
    job = Path(shutil.copytree(here / "job", here / damage))
    file, content = job / "trained.bin", (job / "trained.bin").read_bytes()
    if damage == "remove":
        file.unlink()
    elif damage == "before":
        result = read_result(job / "result.json")
        assert result.training is not None
        write_result(replace(result, training=replace(result.training, texts=None)), job)
    else:
        file.write_bytes(
            {
                "cut": content[:-16],
                "flip": bytes([content[0] ^ 1]) + content[1:],
                "swap": content[16:] + content[:16],
            }[damage]
        )
    said = command(*evaluate("pairs.jsonl", "--baseline", "model", "--fail-on", "undecided", model=damage))
    assert said.code == 3
    told = " ".join(said.err.replace("\xa0", " ").split())
    reason = {"remove": "remove/trained.bin is missing", "before": "before/result.json has no record of it"}
    assert SENTENCES[Reason.TRAINING_UNKNOWN] in told
    assert f"there may be more: {reason.get(damage, f'{damage}/trained.bin changed after the run')}" in told
    result = read_result(here / "new" / "result.json")
    assert result.datasets[0].trained[0].unknown
    assert Reason.TRAINING_UNKNOWN in result.datasets[0].main_change().reasons


def test_suites_rank_no_model_on_what_it_was_trained_on_and_neither_does_a_comparison_of_kept_scores(
    here: Path,
) -> None:
    task = {"kind": "retrieval", "corpus": "corpus.jsonl"}
    tasks = [{**task, "data": "pairs.jsonl", "name": "seen"}, {**task, "data": "others.jsonl", "name": "new"}]
    tables = {"tasks": tasks, "measure": {"resamples": 100}, "suite": {"baseline": "model"}}
    found = adiabat.evaluate_suite(["model", "job"], checked(SuiteSettings, tables), out="suite")
    judged = {pairing.task: (pairing.verdict, pairing.change.reasons) for pairing in found.pairings}
    assert judged["seen"] == ("undecided", [Reason.TRAINED_ON])
    assert Reason.SEEN_DOCUMENTS in judged["new"][1]
    assert {(score.task, score.model) for score in found.scores if not score.is_proof} == {("seen", "job")}
    assert {(fact.task, fact.name): fact.value for fact in found.facts} == {
        ("seen", "queries trained on"): 20,
        ("seen", "relevant documents trained on"): 20,
        ("new", "queries trained on"): 0,
        ("new", "relevant documents trained on"): 20,
    }
    assert any("seen: job was trained or validated on 20 of 20 queries" in note for note in found.notes)
    assert [
        note.split(":")[0]
        for note in found.notes
        if note.endswith("part of its score may be memory of these documents")
    ] == ["new"]
    again = adiabat.compare("suite/scores/model", "suite/scores/job")
    # The scores of the model are asked for their training data in the same way.
    compared = {pairing.task: (pairing.verdict, pairing.change.reasons) for pairing in again.pairings}
    assert compared == judged
    assert set(found.notes) <= set(again.notes)


def test_case_and_white_space_make_no_other_text_and_ids_do_not_compare_with_texts() -> None:
    known = TrainedTexts.joined(
        [TrainedTexts.of(["What  is\nheat?"], doc_ids=["7"]), TrainedTexts(unknown="lost")]
    )
    assert known.holds_queries(["what is heat?", "What is heat"]).tolist() == [True, False]
    assert known.holds_documents(["7", "8"], are_texts=False) is not None
    assert known.holds_documents(["7"], are_texts=True) is None
    assert known.unknown == "lost"
    assert TrainedTexts().holds_queries([]).dtype == np.bool_
