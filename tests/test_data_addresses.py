"""DATA of every verb: folders of several splits, layouts of the hub, and addresses with columns."""

from pathlib import Path
from typing import Any
from unicodedata import normalize

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adiabat
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from tests.commands import (
    DOCUMENTS,
    FAST,
    PAIRS,
    Run,
    assert_refused,
    evaluate,
    lines,
    setting,
    tune,
    write_world,
)
from tests.commands import here as here
from tests.commands import run as run
from tests.pages import no_page as no_page


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    for split, rows in (("train", PAIRS[:14]), ("validation", PAIRS[14:])):
        (here / "split/data").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), here / f"split/data/{split}-00000-of-00001.parquet")
    queries = [{"_id": f"q{number}", "text": pair["query"]} for number, pair in enumerate(PAIRS)]
    judged = [{"query-id": f"q{number}", "corpus-id": f"d{number}", "score": 1} for number in range(12)]
    for part, rows in (("corpus/corpus", DOCUMENTS), ("queries/queries", queries), ("data/test", judged)):
        path = here / f"mteb/{part}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)
    return here


def test_a_split_is_named_in_the_address_or_the_settings(run: Run, tmp_path: Path) -> None:
    job = str(tmp_path / "job")
    named = ("--split", "train", *setting("data.validation=split", "data.validation_split=validation"))
    assert run("tune", "model", "store", "split", "--out", job, *FAST[:-2], *named).code == 0
    record = read_result(Path(job) / "result.json", Result).training
    assert record is not None
    # Training and validation queries are hashed together.
    assert record.texts is not None
    assert (record.validation_pairs, record.texts.queries) == (6, 20)
    # The training data's split is not taken for validation data in the same folder.
    refused = run("tune", "model", "store", "split", "--out", "new", *FAST[:-2], *named[:-2])
    assert_refused(refused, "split must be read with one of its splits (train, validation), got none")
    assert adiabat.inspect("split?split=validation").rows == 6
    for name, rows in (("docs-train", DOCUMENTS[:9]), ("docs-test", DOCUMENTS[9:])):
        (tmp_path / "docs").mkdir(exist_ok=True)
        lines(tmp_path / f"docs/{name}.jsonl", rows)
    with pytest.warns(UserWarning, match="all of its splits are read as one corpus"):
        assert adiabat.inspect("split", split="train", corpus=str(tmp_path / "docs")).rows == 14


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("evaluate model store split --split validation", ""),
        (
            "mine split corpus.jsonl --set data.split=train --set mine.near_duplicate=1",
            "none with a negative",
        ),
    ],
)
def test_checks_before_torch_know_the_split_of_the_settings(
    run: Run, tmp_path: Path, command: str, refused: str
) -> None:
    said = run(command, "--out", str(tmp_path / "out.jsonl"))
    assert "must be read with" not in said.err
    assert said.code == (2 if refused else 0)
    assert refused in said.err


def test_the_layout_of_mteb_on_the_hub_is_embedded_and_evaluated(run: Run, tmp_path: Path) -> None:
    store, out = str(tmp_path / "store"), tmp_path / "out"
    assert run("embed", "model", "mteb", "--out", store).code == 0
    assert run(*evaluate("mteb", store=store, out=str(out))).code == 0
    measured = read_result(out / "result.json", Result).datasets
    assert [(each.name, each.queries) for each in measured] == [("mteb/test", 12)]


def other(name: str, columns: tuple[str, str], count: int = 14) -> str:
    """Other queries on the same documents, with columns of other names."""
    rows = [{columns[0]: f"what about {name} {number}", columns[1]: f"d{number}"} for number in range(count)]
    Path(name).write_text(
        "".join([f"{','.join(columns)}\n", *(f"{','.join(row.values())}\n" for row in rows)])
    )
    return name


GERMAN = ("frage", "dokument")
RETAIN_TABLE = """
[data.columns]
query = "question"
positive = "answer_id"

[[retain]]
store = "store"
data = "tax.csv"
columns = { query = "q&a" }
"""


def test_each_set_of_an_evaluation_has_its_own_columns(run: Run, here: Path, tmp_path: Path) -> None:
    target, law, tax = (
        other("target.csv", ("question", "answer_id")),
        other("law.csv", ("frage", "dokument")),
        other("tax.csv", ("q&a", "pos")),
    )
    retain = ("--retain", "store", f"{law}?query=frage&positive=dokument")
    (tmp_path / "retain.toml").write_text(RETAIN_TABLE)
    out = tmp_path / "out"
    said = run(*evaluate(target, *retain, "--config", str(tmp_path / "retain.toml"), out=str(out)))
    assert said.code == 0, said.err
    result = read_result(out / "result.json", Result)
    assert [(each.name, each.role, each.queries) for each in result.datasets] == [
        ("target", "target", 14),
        ("tax", "retain", 14),
        ("law", "retain", 14),
    ]
    assert result.inputs["retain 1"]["data"] == "tax.csv?query=q%26a"
    python = adiabat.evaluate(
        "model",
        "store",
        f"{target}?query=question&positive=answer_id",
        retain=[("store", law, {"query": "frage", "positive": "dokument"}), ("store", f"{tax}?query=q%26a")],
    )
    assert {each.name: each.changes for each in python.datasets} == {
        each.name: each.changes for each in result.datasets
    }
    named = {"query": "frage", "positive": "dokument"}
    advice = adiabat.advise(
        "model", "store", f"{target}?query=question&positive=answer_id", retain=[("store", law, named)]
    )
    assert [each.role for each in advice.datasets] == ["target", "retain"]


def test_two_sets_in_one_file_are_told_apart_by_their_columns(here: Path) -> None:
    rows = [
        {"en": f"what about law {number}", "de": f"was sagt das Gesetz {number}", "pos": f"d{number}"}
        for number in range(12)
    ]
    lines(here / "two.jsonl", rows)
    result = adiabat.evaluate(
        "model", "store", "two.jsonl?query=en", retain=[("store", "two.jsonl", {"query": "de"})]
    )
    assert [each.queries for each in result.datasets] == [12, 12]
    inspected = adiabat.inspect("two.jsonl?query=de")
    assert (inspected.rows, inspected.faults) == (12, adiabat.inspect("pairs.jsonl").faults)


def test_validation_and_tuning_data_have_columns_of_their_own(run: Run, here: Path, tmp_path: Path) -> None:
    train, dev = other("train.csv", ("question", "answer_id")), other("dev.csv", ("frage", "dokument"), 6)
    validated = ("--set", f"data.validation={dev}?query=frage&positive=dokument")
    data = f"{train}?query=question&positive=answer_id"
    command = ("tune", "model", "store", data, "--out", str(tmp_path / "job"), *FAST[:-2])
    assert run(*command, *validated).code == 0
    assert run(*command, *validated, "--resume").code == 0


EMPTY = [{"query": "a", "positive": "d1"}, {"query": "", "positive": "d2"}]
TWICE = [{"_id": "a", "text": "x"}, {"_id": "a", "text": "y"}]
UNKNOWN = [{"q": "a", "p": "d1"}]


@pytest.mark.parametrize(
    ("data", "retained", "told"),
    [
        (EMPTY, (), r'^row 2 of data: "query" must not be empty$'),
        (PAIRS, (UNKNOWN,), 'row 1 of retain: must have "q", "positive" .* got "q", "p"; .* in columns'),
        (PAIRS, (PAIRS,), "must be another data set than the target, got (data|retain) for"),
        (PAIRS, (PAIRS, {"frage": "q"}), "columns of retain must be adiabat's names, got frage"),
        (PAIRS, (PAIRS, "query"), "triples with the names of its columns"),
    ],
    ids=["an empty query", "unknown columns", "the target again", "an unknown name", "no names"],
)
def test_rows_in_memory_are_named_by_their_argument(
    here: Path, data: Any, retained: tuple[Any, ...], told: str
) -> None:
    with pytest.raises((adiabat.AdiabatError, TypeError), match=told):
        adiabat.evaluate("model", "store", data, retain=[("store", *retained)] if retained else ())


def test_rows_of_a_corpus_in_memory_are_named_by_their_argument(here: Path) -> None:
    with pytest.raises(adiabat.AdiabatError, match="row 2 of corpus: document id must be unique"):
        adiabat.embed("model", TWICE, out="new")


FRAMES = [pd.DataFrame, pl.DataFrame, lambda rows: pl.DataFrame(rows).lazy()]


@pytest.mark.parametrize("frame", FRAMES, ids=["pandas", "polars", "lazy"])
def test_frames_of_pandas_and_polars_are_rows_corpora_and_vectors(
    here: Path, tmp_path: Path, frame: Any
) -> None:
    store = adiabat.embed("model", frame(DOCUMENTS), tmp_path / "store")
    assert store.doc_ids([0, 19]) == ["d0", "d19"]
    named = [{"frage": pair["query"], "pos": pair["pos"]} for pair in PAIRS]
    with pytest.raises(adiabat.AdiabatError, match="row 1 of data: must have"):
        adiabat.inspect(frame(named), settings={"data": {"columns": {"query": "fragen"}}})
    assert adiabat.inspect(frame(named), settings={"data": {"columns": {"query": "frage"}}}).rows == 20
    vectors = store.gather(range(20)).tolist()
    table = frame(
        [{"nummer": f"d{n}", "zahlen": vectors[n], "inhalt": DOCUMENTS[n]["text"]} for n in range(20)]
    )
    columns = {"doc_id": "nummer", "vector": "zahlen", "text": "inhalt"}
    imported = adiabat.import_vectors(table, tmp_path / "whole", columns=columns, model="model")
    assert (imported.doc_ids([3]), imported.texts([3])) == (["d3"], [DOCUMENTS[3]["text"]])
    texts = frame([{"nummer": row["_id"], "inhalt": row["text"]} for row in reversed(DOCUMENTS)])
    apart = adiabat.import_vectors(table, tmp_path / "apart", texts=texts, columns=columns, model="model")
    assert apart.texts([3]) == [DOCUMENTS[3]["text"]]
    with pytest.raises(adiabat.AdiabatError) as caught:
        adiabat.import_vectors(table, tmp_path / "none", columns={"vector": "zahl"})
    assert "column named zahl, got nummer, zahlen, inhalt" in str(caught.value)


def test_columns_of_vectors_are_named_on_the_command_line(run: Run, here: Path, tmp_path: Path) -> None:
    vectors = adiabat.Store.open("store").gather(range(20)).tolist()
    pq.write_table(
        pa.table({"nummer": [f"d{n}" for n in range(20)], "zahlen": vectors}), tmp_path / "v.parquet"
    )
    file = f"{tmp_path / 'v.parquet'}?doc_id=nummer&vector=zahlen"
    assert run("embed", "model", "corpus.jsonl", "--import", file, "--out", str(tmp_path / "s")).code == 0
    refused = run(
        "embed model corpus.jsonl --import", f"{tmp_path / 'v.parquet'}?vector=zahl", "--out", "new"
    )
    assert_refused(refused, "v.parquet: must have a column named zahl, got nummer, zahlen")


def test_ids_in_another_unicode_form_are_found_by_every_verb_that_is_told(
    run: Run, here: Path, tmp_path: Path
) -> None:
    composed, decomposed = (normalize(form, "größe") for form in ("NFC", "NFD"))
    documents = [{"_id": f"{decomposed}{row['_id']}", "text": row["text"]} for row in DOCUMENTS]
    store = adiabat.embed("model", documents, tmp_path / "store")
    lines(
        tmp_path / "pairs.jsonl", [{"query": f"document {n}", "pos": [f"{composed}d{n}"]} for n in range(20)]
    )
    pairs, nfc = str(tmp_path / "pairs.jsonl"), ("--set", "data.ids=nfc")
    refused = run(*evaluate(pairs, store=str(store.path)))
    assert_refused(refused, "20 of them differ in Unicode form alone (NFC, NFD)", 'set data.ids = "nfc"')
    assert run(*evaluate(pairs, *nfc, store=str(store.path), out=str(tmp_path / "out"))).code == 0
    assert run(*tune(pairs, *nfc, store=str(store.path), out=str(tmp_path / "job"))).code == 0
    mined = ("mine", pairs, str(store.path), "--out")
    assert_refused(run(*mined, "new.jsonl"), 'set data.ids = "nfc"')
    assert run(*mined, str(tmp_path / "mined.jsonl"), *nfc).code == 0
    lines(tmp_path / "corpus.jsonl", documents)
    task = {"kind": "retrieval", "data": pairs, "corpus": str(tmp_path / "corpus.jsonl")}
    with pytest.raises(adiabat.AdiabatError, match="it lacks 20 documents"):
        adiabat.evaluate_suite(["model"], {"tasks": [task]}, tmp_path / "suite", device="cpu")
    assert adiabat.evaluate_suite(
        ["model"], {"tasks": [{**task, "ids": "nfc"}]}, tmp_path / "suite", device="cpu"
    ).models
    ids, vectors = [f"{composed}d{n}" for n in range(20)], store.gather(range(20))
    with pytest.raises(adiabat.AdiabatError, match='set data.ids = "nfc"'):
        adiabat.import_vectors(
            vectors, tmp_path / "none", ids=ids, texts=tmp_path / "corpus.jsonl", model="model"
        )
    settings = {"data": {"ids": "nfc"}}
    imported = adiabat.import_vectors(
        vectors,
        tmp_path / "imported",
        ids=ids,
        texts=tmp_path / "corpus.jsonl",
        model="model",
        settings=settings,
    )
    assert (imported.doc_ids([0]), imported.texts([0])) == ([f"{composed}d0"], [DOCUMENTS[0]["text"]])


def test_a_folder_of_text_files_is_embedded_and_mined_as_a_corpus(
    run: Run, here: Path, tmp_path: Path
) -> None:
    for row in DOCUMENTS:
        (tmp_path / "texts" / row["_id"][1:2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / row["_id"][1:2] / f"{row['_id']}.txt").write_text(row["text"])
    assert run("embed", "model", str(tmp_path / "texts"), "--out", str(tmp_path / "store")).code == 0
    store = adiabat.Store.open(tmp_path / "store")
    assert (store.count, store.doc_ids([0]), store.texts([0])) == (20, ["0/d0.txt"], [DOCUMENTS[0]["text"]])
    lines(tmp_path / "pairs.jsonl", [{"query": "document 3", "pos": ["3/d3.txt"]}])
    assert run(f"mine {tmp_path}/pairs.jsonl {tmp_path}/texts --out {tmp_path}/mined.jsonl").code == 0
    assert_refused(run(*evaluate(str(tmp_path / "texts"))), "d0.txt: must have")
