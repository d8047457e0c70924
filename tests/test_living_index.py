"""A store that is updated: every verb sees its documents alone, and nothing made of the former ones is used
again.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.core.files import read_json
from adiabat.store.vector_store import Store
from tests.commands import (
    DOCUMENTS,
    FAST,
    PAIRS,
    assert_refused,
    here,
    lines,
    listing,
    run,
    setting,
    write_world,
)
from tests.commands import Run as Run
from tests.jobs import everything, interrupt_at
from tests.pages import no_page as no_page

__all__ = ["here", "run"]

CHANGED = [
    {"_id": f"d{number}", "text": f"document {number} about {'xyz'[number % 3] * 5}"}
    for number in (2, 5, 20, 21)
]
GONE = ["d7", "d11", "d16"]
ASKED = [pair for pair in PAIRS if not {*pair["pos"], *pair["neg"]} & {*GONE}]  # type: ignore[misc]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its store of all documents, that store updated, and one of the same vectors in which nothing
    was ever deleted.
    """
    folder = tmp_path_factory.mktemp("living")
    write_world(folder)
    lines(folder / "changed.jsonl", CHANGED)
    lines(folder / "asked.jsonl", ASKED)
    write_stores(folder / "model", DOCUMENTS, folder)
    return folder


def write_stores(model: Path, documents: list[dict[str, str]], folder: Path) -> None:
    """A store of documents that is updated, and two of its vectors that never were, in its order and in the
    reverse.
    """
    adiabat.embed(model, documents, folder / "living")
    store = adiabat.embed(model, CHANGED, folder / "living", update=True, delete=GONE)
    ids = store.doc_ids(range(store.count))
    texts = [
        {"_id": doc_id, "text": text}
        for doc_id, text in zip(ids, store.texts(range(store.count)), strict=True)
    ]
    vectors = np.asarray(store.vectors)
    adiabat.import_vectors(vectors, folder / "fresh", ids=ids, texts=texts, model=model)
    adiabat.import_vectors(vectors[::-1], folder / "reversed", ids=ids[::-1], texts=texts, model=model)


def found(run: Run, store: str) -> object:
    said = run("search", store, "document 7 about hhhhh", "--model", "model", "-k", "30", "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_search_and_evaluation_find_what_they_find_in_a_store_built_anew(run: Run) -> None:
    assert Store.open("living").manifest.tombstones == 5
    hits = {store: found(run, store) for store in ("living", "fresh", "reversed")}
    assert hits["living"] == hits["fresh"] == hits["reversed"]
    assert not any(f'"{doc_id}"' in json.dumps(hits["living"]) for doc_id in GONE)
    results = []
    for store in ("living", "fresh", "reversed"):
        said = run(f"evaluate model {store} asked.jsonl --set measure.negatives=store --out of-{store}")
        assert said.code == 0, said.err
        result = json.loads((Path(f"of-{store}") / "result.json").read_text())["datasets"]
        results.append({key: value for key, value in result[0].items() if key != "store"})
    assert results[0] == results[1] == results[2]


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("verb", ["advise", "space"])
def test_advice_and_the_space_are_those_of_a_store_built_anew(run: Run, verb: str, tmp_path: Path) -> None:
    documents = [
        {"_id": f"d{number}", "text": f"document {number} about {'abcdefgh'[number % 8] * 5}"}
        for number in range(30)
    ]
    write_stores(Path("model"), documents, tmp_path)
    ids = [f"d{number}" for number in range(30) if f"d{number}" not in GONE]
    lines(tmp_path / "asked.jsonl", [{"query": f"question {doc_id}", "pos": [doc_id]} for doc_id in ids])
    results = []
    for store in ("living", "fresh", "reversed"):
        words = setting("space.resamples=100") if verb == "space" else ()
        out = tmp_path / f"of-{store}"
        said = run(f"{verb} model {tmp_path}/{store} {tmp_path}/asked.jsonl --out {out}", *words)
        assert said.code == 0, said.err
        results.append(without(read_json(out / "result.json", remedy=""), *OF_A_CALL))
    assert results[0] == results[1]
    if verb == "advise":
        # Random documents of the space are drawn by their rows.
        assert results[0] == results[2]


OF_A_CALL = ("created", "seconds", "command", "title", "inputs", "store", "versions", "tuning")
"""Keys of a record that name a call, or the time that tuning would take, not what it measured."""


def without(plain: object, *keys: str) -> object:
    """Nested data without some keys."""
    if isinstance(plain, dict):
        return {key: without(value, *keys) for key, value in plain.items() if key not in keys}
    if isinstance(plain, list):
        return [without(value, *keys) for value in plain]
    return plain


@pytest.mark.parametrize("loss", ["tune.loss=store_softmax", "tune.negatives=hardest"])
def test_tuning_learns_what_it_learns_from_a_store_built_anew(run: Run, loss: str, tmp_path: Path) -> None:
    jobs = []
    for store in ("living", "fresh"):
        said = run(f"tune model {store} asked.jsonl --out", str(tmp_path / store), *FAST, "--set", loss)
        assert said.code == 0, said.err
        jobs.append(everything(tmp_path / store))
    assert jobs[0] == jobs[1]


def test_a_document_that_was_deleted_is_missing(run: Run, tmp_path: Path) -> None:
    new = str(tmp_path / "new")
    said = run("evaluate", "model", "living", "pairs.jsonl", "--out", new)
    assert_refused(
        said,
        "every document must be in the store living, it lacks 3 documents",
        "'d7'",
        "data.missing = drop",
    )
    said = run("evaluate", "model", "living", "pairs.jsonl", "--out", new, "--set", "data.missing=drop")
    assert said.code == 0, said.err
    assert (
        "3 documents missing from the store left out, and 3 queries without a positive"
        in (tmp_path / "new" / "result.json").read_text()
    )


def test_an_index_of_former_documents_is_built_again(run: Run, tmp_path: Path) -> None:
    adiabat.embed("model", "corpus.jsonl", tmp_path / "s")
    lines(
        tmp_path / "words.jsonl",
        [{**pair, "query": f"about document {number}"} for number, pair in enumerate(ASKED)],
    )
    few = "--set mine.negatives_per_query=10"
    mine = f"mine {tmp_path}/words.jsonl {tmp_path}/s --index {tmp_path}/index {few}"
    assert run(mine, "--out", str(tmp_path / "before.jsonl")).code == 0
    built = (tmp_path / "index" / "lexical.json").read_text()
    assert run("embed", "model", "changed.jsonl", "--out", str(tmp_path / "s"), "--update").code == 0
    (tmp_path / "gone.json").write_text(json.dumps(GONE))
    assert run("embed", "--delete", str(tmp_path / "gone.json"), "--out", str(tmp_path / "s")).code == 0
    said = run(mine, "--out", str(tmp_path / "after.jsonl"))
    assert said.code == 0, said.err
    updated = (tmp_path / "index" / "lexical.json").read_text()
    assert json.loads(updated)["count"] == 19 != json.loads(built)["count"]
    written = [json.loads(row) for row in (tmp_path / "after.jsonl").read_text().splitlines()]
    assert not {doc_id for row in written for doc_id in row["neg"]} & {*GONE}
    assert any("d21" in row["neg"] for row in written)
    # Compaction leaves the documents as they are: their index stays.
    assert run("embed", "--compact", "--out", str(tmp_path / "s")).code == 0
    assert run(mine, "--out", str(tmp_path / "compacted.jsonl")).code == 0
    assert (tmp_path / "index" / "lexical.json").read_text() == updated
    assert (tmp_path / "compacted.jsonl").read_bytes() == (tmp_path / "after.jsonl").read_bytes()


def test_a_job_resumes_on_the_documents_it_began_with_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, job = str(tmp_path / "s"), str(tmp_path / "job")
    adiabat.embed("model", "corpus.jsonl", store)
    adiabat.delete(store, GONE[:2])
    tune = ("tune", "model", store, "asked.jsonl", "--out", job, *FAST)
    with monkeypatch.context() as patch:
        interrupt_at(3, patch)
        assert run(*tune).code == 130
    shutil.copytree(job, tmp_path / "changed")
    # Rows are those of documents, not of the file: compaction changes none.
    adiabat.compact(store)
    said = run(*tune, "--resume")
    assert said.code == 0, said.err
    adiabat.delete(store, GONE[2:])
    before = listing(tmp_path / "changed")
    changed = [str(tmp_path / "changed") if word == job else word for word in tune]
    assert_refused(run(*changed, "--resume"), "the vectors of the store differ from those the job began with")
    assert listing(tmp_path / "changed") == before


@pytest.mark.filterwarnings("default")
def test_documents_that_lost_their_text_are_deleted(run: Run, tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    adiabat.embed("model", "corpus.jsonl", store)
    lines(
        tmp_path / "blank.jsonl",
        [{"_id": "d3", "text": " "}, {"_id": "d4", "text": "another"}, {"_id": "never", "text": ""}],
    )
    assert_refused(
        run("embed", "model", str(tmp_path / "blank.jsonl"), "--out", store, "--update"),
        "must not be empty",
        "blank.jsonl:1",
    )
    said = run(f"embed model {tmp_path}/blank.jsonl --out {store} --update --set data.blank=drop")
    assert said.code == 0, said.err
    assert "1 replaced, 1 deleted" in said.err
    assert Store.open(store).rows(["d3", "d4", "never"]).tolist() == [-1, 18, -1]


def test_an_update_says_what_it_did(run: Run, tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    adiabat.embed("model", "corpus.jsonl", store)
    (tmp_path / "gone.txt").write_text("d7\nd11\nd16\n")
    update = f"embed model changed.jsonl --out {store} --update --delete {tmp_path}/gone.txt"
    said = run(update, "--json")
    assert "2 new, 2 replaced, 3 deleted; its file keeps 5" in said.err
    assert json.loads(said.out)["count"] == 19
    assert "is as it was: 4 unchanged" in run(update).err
    assert "5 vectors of former documents removed" in run("embed", "--compact", "--out", store).err


def test_a_store_is_not_made_inside_of_a_model_or_store_but_updated_where_it_is(run: Run, here: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 32)).astype(np.float32)
    for folder in ("model", "living"):
        with pytest.raises(adiabat.JobError, match="lies in the job, model or store"):
            adiabat.import_vectors(vectors, f"{folder}/new", ids=[str(row) for row in range(20)])
        assert not (here / folder / "new").exists()
    shutil.copytree("living", "model/old")
    assert run("embed", "model", "changed.jsonl", "--out", "model/old", "--update").code == 0
    shutil.rmtree("model/old")


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


@pytest.fixture(params=[(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)], ids=["composed", "decomposed"])
def forms(request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> tuple[str, str]:
    """The id that a document of the store `s` has, and the same in the other Unicode form, in which files
    here name it.
    """
    stored, other = request.param
    lines(
        tmp_path / "corpus.jsonl", [{"_id": stored, "text": "a document"}, {"_id": "d0", "text": "another"}]
    )
    lines(
        tmp_path / "other.jsonl", [{"_id": other, "text": "its new text"}, {"_id": "d1", "text": "a third"}]
    )
    lines(tmp_path / "gone.txt", [other])
    adiabat.embed("model", tmp_path / "corpus.jsonl", tmp_path / "s")
    return stored, other


def test_an_id_in_another_unicode_form_is_never_new_nor_missing_without_a_word(
    forms: tuple[str, str], run: Run, tmp_path: Path
) -> None:
    store, other, gone = (str(tmp_path / name) for name in ("s", "other.jsonl", "gone.txt"))
    vectors = adiabat.load("model").encode_document(["its new text", "a third"])
    np.save(tmp_path / "v.npy", vectors)
    (tmp_path / "ids.txt").write_text(f"{forms[1]}\nd1\n", encoding="utf-8")
    before = listing(tmp_path / "s")
    for command in (
        ("model", other, "--update"),
        ("model", other, "--append"),
        ("model", other, "--update", "--import", str(tmp_path / "v.npy"), "--ids", str(tmp_path / "ids.txt")),
        ("--delete", gone),
        ("--delete", gone, "--missing", "drop"),
    ):
        assert_refused(
            run("embed", *command, "--out", store), forms[1], "Unicode form alone", 'data.ids = "nfc"'
        )
    assert listing(tmp_path / "s") == before


def test_ids_in_another_unicode_form_are_those_of_the_store_on_request(
    forms: tuple[str, str], run: Run, tmp_path: Path
) -> None:
    store, nfc = str(tmp_path / "s"), ("--set", "data.ids=nfc")
    assert_refused(
        run("embed", "model", str(tmp_path / "other.jsonl"), "--out", store, "--append", *nfc),
        forms[0],
        "must be new",
        "--update",
    )
    assert (
        "1 new, 1 replaced"
        in run("embed", "model", str(tmp_path / "other.jsonl"), "--out", store, "--update", *nfc).err
    )
    updated = Store.open(store)
    assert updated.texts(updated.rows([forms[0]])) == ["its new text"]
    assert updated.rows([forms[1]]).tolist() == [-1]
    delete = ("embed", "--delete", str(tmp_path / "gone.txt"), "--out", store)
    assert "1 deleted" in run(*delete, *nfc).err
    assert "as it was" in run(*delete, *nfc).err
    assert Store.open(store).rows([forms[0], "d0", "d1"]).tolist() == [-1, 0, 1]


def test_imported_vectors_replace_ids_in_another_unicode_form_on_request(
    forms: tuple[str, str], tmp_path: Path
) -> None:
    rows = [{"_id": forms[1], "text": "its new text"}]
    vectors = adiabat.load("model").encode_document(["its new text"])
    data = {"ids": "nfc"}
    store = adiabat.import_vectors(
        vectors, tmp_path / "s", ids=[forms[1]], texts=rows, model="model", update=True, data=data
    )
    assert store.texts(store.rows([forms[0], "d0"])) == ["its new text", "another"]
    assert store.count == 2
    assert adiabat.delete(store, [forms[1]], settings={"data": data}).doc_ids([0]) == ["d0"]


def test_two_documents_for_one_id_are_refused(forms: tuple[str, str], tmp_path: Path) -> None:
    rows = [{"_id": forms[0], "text": "a document"}, {"_id": forms[1], "text": "its new text"}]
    with pytest.raises(adiabat.StoreError, match=f'several documents for "{forms[0]}"'):
        adiabat.embed("model", rows, tmp_path / "s", update=True, data={"ids": "nfc"})
    assert Store.open(tmp_path / "s").texts([0, 1]) == ["a document", "another"]


def test_a_treatment_of_missing_ids_needs_ids(run: Run) -> None:
    with pytest.raises(adiabat.ConfigError, match="missing is about the ids in delete, got none"):
        adiabat.embed("model", "changed.jsonl", "living", update=True, missing="drop")
    with pytest.raises(adiabat.ConfigError, match="missing is about the ids in delete, got none"):
        adiabat.import_vectors(np.ones((1, 32)), "living", ids=["d1"], update=True, missing="drop")
