"""`measure.cluster`: queries of shared documents and of a column are drawn together, from files to the page
and to `compare`.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import adiabat
from adiabat.core.ragged import Ragged
from adiabat.data.columns import shared_values
from adiabat.data.examples import read_examples
from adiabat.data.table_rows import RowError
from adiabat.evaluation.retrieval import query_clusters
from adiabat.evaluation.score_files import read_scores
from adiabat.results.evaluation_result import Result
from adiabat.results.verdict import Reason
from adiabat.store.addressing import AddressedSet
from tests.commands import lines, run_in_process, write_world

QUERIES = 64


def write_data(folder: Path) -> Path:
    """64 queries, eight for each of eight documents in turn, of 16 sessions; two are equal but for case."""
    write_world(folder)
    rows = [
        {"query": f"question {number}", "pos": [f"d{number % 8}"], "session": f"s{number % 16}", "same": "x"}
        for number in range(QUERIES)
    ]
    rows[1]["query"] = "QUESTION  0"
    return lines(folder / "sessions.jsonl", rows)


def measured(folder: Path, cluster: str, **options) -> Result:
    settings = {"measure": {"cluster": cluster, "resamples": 200}}
    return adiabat.evaluate(
        folder / "model", folder / "store", folder / "sessions.jsonl", settings=settings, **options
    )


def test_a_column_connects_queries_and_few_clusters_of_documents_are_named(tmp_path: Path) -> None:
    write_data(tmp_path)
    by_documents = measured(tmp_path, "documents").datasets[0]
    # Of 64 queries with 8 documents, the two of equal text connect two documents.
    assert by_documents.clusters is None
    assert by_documents.main_change().reasons == [Reason.FEW_CLUSTERS]
    told = "64\N{NO-BREAK SPACE}queries into 7\N{NO-BREAK SPACE}clusters"
    assert any(told in note for note in by_documents.notes)
    by_session = measured(tmp_path, "session", out=tmp_path / "out").datasets[0]
    # Sessions s0 and s1 are one cluster, since they share a question.
    assert by_session.clusters == 15
    assert any('15\N{NO-BREAK SPACE}clusters by the column "session"' in note for note in by_session.notes)
    assert "15\N{NO-BREAK SPACE}clusters" in (tmp_path / "out" / "report.html").read_text()
    none = measured(tmp_path, "none").datasets[0]
    assert none.clusters is None
    assert not any("cluster" in note for note in none.notes)
    widths = [
        np.diff(dataset.main_change().after_interval)[0]
        for dataset in (by_session, by_documents, none)
        if dataset.main_change().after_interval
    ]
    assert widths[0] != widths[1] == widths[2]
    stored = read_scores(next((tmp_path / "out" / "scores").rglob("*.parquet")))
    assert all(sample.clusters is not None and sample.clusters.count == 15 for sample in stored.samples)


def test_a_beir_folder_has_the_column_in_its_metadata(tmp_path: Path) -> None:
    write_world(tmp_path)
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    lines(
        folder / "queries.jsonl",
        [{"_id": f"q{n}", "text": f"question {n}", "metadata": {"session": n // 2}} for n in range(20)],
    )
    judged = "".join(f"q{n}\td{n}\t1\n" for n in range(20))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    result = adiabat.evaluate(
        tmp_path / "model",
        tmp_path / "store",
        folder,
        settings={"measure": {"cluster": "session", "resamples": 200}},
    )
    assert result.datasets[0].clusters == 10
    with pytest.raises(adiabat.AdiabatError, match=r'queries.jsonl:1: expected "user" \(measure.cluster\)'):
        adiabat.evaluate(
            tmp_path / "model", tmp_path / "store", folder, settings={"measure": {"cluster": "user"}}
        )


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ("user", 'must have "user" (measure.cluster), "query", "pos" (an example), got "query", "pos"'),
        (
            "same",
            "measure.cluster must name a column with different values, got x in every row of sessions.jsonl",
        ),
    ],
)
def test_a_column_that_is_missing_or_constant_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cluster: str,
    message: str,
) -> None:
    write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = f"evaluate model store sessions.jsonl --out out --set measure.cluster={cluster}"
    said = run_in_process(capsys, monkeypatch, [command])
    assert said.code == 2
    assert message in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:.*looks like a list in 20 rows")
@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_lists_connect_queries_that_share_a_value(tmp_path: Path, form: str) -> None:
    write_world(tmp_path)
    # Five groups of four queries: the first two of a group share one value, the last two another, the middle
    # two a third.
    links = [["a"], ["a", "b"], ["c", "b"], ["c"]]
    rows = [
        {"query": f"question {n}", "pos": f"d{n}", "user": [f"{n // 4}{link}" for link in links[n % 4]]}
        for n in range(20)
    ]
    path = frame_file(tmp_path / f"lists.{form}", rows)
    result = adiabat.evaluate(
        tmp_path / "model",
        tmp_path / "store",
        path,
        settings={"measure": {"cluster": "user", "resamples": 200}},
    )
    assert result.datasets[0].clusters == 5


def frame_file(path: Path, rows: list[dict]) -> Path:
    frame = pd.DataFrame(rows)
    if path.suffix == ".jsonl":
        lines(path, rows)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


def test_numbers_of_any_kind_compare_by_value_and_empty_values_connect_nothing() -> None:
    given = [
        1,
        1.0,
        1.5,
        True,
        "1.5",
        2**60,
        0.1 + 0.2,
        None,
        float("nan"),
        "",
        [],
        [None, ""],
        [1, 1.0, "x"],
        False,
    ]
    wanted = [("1",), ("1",), ("1.5",), ("true",), ("1.5",), (str(2**60),), ("0.30000000000000004",)]
    wanted += [(), (), (), (), (), ("1", "x"), ("false",)]
    assert [shared_values(value, "user", "rows.jsonl:1") for value in given] == wanted
    for wrong in ({"id": 1}, [[1]], [{"id": 1}]):
        with pytest.raises(RowError, match=r'rows.jsonl:1: "user" must be a text, .*, got'):
            shared_values(wrong, "user", "rows.jsonl:1")


def test_rows_of_a_labelled_query_join_their_values(tmp_path: Path) -> None:
    rows = [
        {"query": f"question {n // 2}", "passage": f"text {n}", "label": 1, "user": n / 2} for n in range(4)
    ]
    path = frame_file(tmp_path / "labelled.jsonl", rows)
    examples = read_examples(path, columns={"measure.cluster": "user"})
    assert [example.clusters for example in examples.examples] == [("0", "0.5"), ("1", "1.5")]


def test_a_column_that_connects_all_rows_is_refused(tmp_path: Path) -> None:
    rows = [{"query": f"question {n}", "pos": f"d{n}", "user": [n, n + 1]} for n in range(12)]
    write_world(tmp_path)
    path = frame_file(tmp_path / "chain.jsonl", rows)
    with pytest.raises(adiabat.AdiabatError, match=r"connect all rows of .*chain\.jsonl"):
        adiabat.evaluate(
            tmp_path / "model", tmp_path / "store", path, settings={"measure": {"cluster": "user"}}
        )


def test_documents_join_sessions_only_if_enough_clusters_remain() -> None:
    def data(count: int, documents: int) -> AddressedSet:
        queries = [f"question {number}" for number in range(count)]
        rows = Ragged.of([[number % documents] for number in range(count)])
        sessions = Ragged.of([[number // 2] for number in range(count)])
        return AddressedSet(
            "set",
            queries,
            queries,
            rows,
            Ragged.of([[1]] * count),
            Ragged.of([[]] * count),
            clusters=sessions,
        )

    many = query_clusters(data(200, 100), "session")
    assert (many.count, many.by) == (50, 'the column "session" and shared relevant documents')
    few = query_clusters(data(200, 12), "session")
    assert (few.count, few.by) == (100, 'the column "session"')
    assert query_clusters(data(200, 100), "none") is None
    assert query_clusters(data(6, 5), "documents").numbers.tolist() == [0, 1, 2, 3, 4, 0]
