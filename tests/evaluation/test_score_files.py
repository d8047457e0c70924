"""Scores on disk: what comes back is what went in, and other files are refused in one line."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.core.errors import DataError, JobError
from adiabat.evaluation.score_files import (
    Scored,
    folder_names,
    read_record,
    read_scores,
    refuse_foreign_scores,
    replacing_scores,
    score_files,
    write_scores,
)
from adiabat.stats.samples import GridSample, Sample, TaskScores
from tests.evaluation.scored import gridded, ranked


def everything() -> TaskScores:
    """Scores that have every part."""
    generator = np.random.default_rng(0)
    values = generator.random((2, 3, 4)).astype(np.float32)
    errors = np.arange(6).reshape(2, 3)
    pairs, counted = np.array([3.0, 4.0, 5.0, 6.0]), {"lower_is_better": True, "proportion": True}
    groups = np.array([0, 0, 1, 1])
    samples = [
        Sample("PND pooled", np.array([1.0, 2.0, 0.0, 4.0]), "cosine", pairs, **counted),
        Sample("PND pooled", np.array([1.0, 2.0, 0.0, 1 / 3]), "distance", pairs),
        Sample("Spearman", generator.random(4), "dot", generator.random(4), "spearman", groups),
        Sample("accuracy", np.array([0.0, 1.0, 1.0, 0.0])),
    ]
    where = ("cosine", ("en", "de"), ("en", "de", "fr"))
    errors_of = GridSample("entailment-neutral", *where, values, True, errors, 100)
    cells = [errors_of, GridSample("P@1", *where, values + 1, False)]
    texts, notes = ["one", "שתיים", "", "4 | <b>"], ("a note", "מבחן")
    about = ("a task", "nli_grid", "premise", ["1", "2", "3", "4"])
    return TaskScores(*about, samples, texts, 7, cells, {"facts": 0.5}, notes)


def assert_equal(one: Any, other: Any) -> None:
    """Records of arrays, part by part, arrays bit for bit."""
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    elif hasattr(one, "__dataclass_fields__"):
        assert type(one) is type(other)
        for field in fields(one):
            assert_equal(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, list | tuple) and one and not isinstance(one[0], str):
        for first, second in zip(one, other, strict=True):
            assert_equal(first, second)
    else:
        assert (list(one) == list(other)) if isinstance(one, list | tuple) else one == other


GRID = gridded(np.ones((2, 2, 3)))


@pytest.mark.parametrize("scores", [everything(), ranked([0.1, 1 / 3]), GRID], ids=["all", "ranked", "grid"])
def test_scores_come_back_as_they_went(tmp_path: Path, scores: TaskScores) -> None:
    path = tmp_path / "deep" / "scores.parquet"
    write_scores(scores, path, key="abc", about={"model": "m", "seconds": 1.5})
    assert_equal(read_scores(path), scores)
    record = read_record(path)
    assert (record["key"], record["about"]) == ("abc", {"model": "m", "seconds": 1.5})


def test_columns_have_names_that_people_know(tmp_path: Path) -> None:
    write_scores(everything(), tmp_path / "s.parquet", key="", about={})
    names = pq.read_schema(tmp_path / "s.parquet").names
    assert names[:4] == ["unit", "text", "PND pooled by cosine", "PND pooled by cosine: reference"]
    assert {"Spearman by dot: group", "accuracy", "cells: P@1 by cosine"} <= set(names)


def test_half_a_character_of_a_query_is_replaced(tmp_path: Path) -> None:
    scores = replace(ranked([0.5]), texts=["broken \ud83d here"])
    write_scores(scores, tmp_path / "s.parquet", key="", about={})
    assert read_scores(tmp_path / "s.parquet").texts == ["broken ? here"]


def truncated(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


def without_values(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["nDCG@10 by cosine"]), path)


def recorded(path: Path, change: dict[str, Any]) -> None:
    table = pq.read_table(path)
    record = {**json.loads(table.schema.metadata[b"adiabat"]), **change}
    pq.write_table(table.replace_schema_metadata({b"adiabat": json.dumps(record).encode()}), path)


def written_again(path: Path, name: str, values: Any) -> None:
    """By another program, without a checksum."""
    table = pq.read_table(path)
    metadata = {key: value for key, value in table.schema.metadata.items() if key == b"adiabat"}
    columns = {column: table[column] for column in table.column_names} | {name: pa.array(values)}
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)


UNDAMAGED = r"s\.parquet must be undamaged, got .*; evaluate again"
OURS = {"measure": "nDCG@10", "similarity": "cosine"}


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("text", ["a", None], "hold texts, got nothing in 1 of 2 rows"),
        ("text", [None, None], "hold texts, got null"),
        ("text", [1, 2], "hold texts, got int64"),
        ("unit", ["a", None], "hold texts, got nothing in 1 of 2 rows"),
        ("unit", [1.0, 2.0], "hold texts, got double"),
        ("unit", ["a", "a"], "name each unit once, got 'a' again"),
        ("nDCG@10 by cosine", [0.1, None], "hold numbers, got nothing in 1 of 2 rows"),
        ("nDCG@10 by cosine", ["a", "b"], "hold numbers, got string"),
        ("nDCG@10 by cosine", [True, False], "hold numbers, got bool"),
        ("cluster", [0.0, 1.5], "hold whole numbers, got double"),
    ],
)
def test_a_column_of_other_values_is_refused_by_its_name(
    tmp_path: Path, name: str, values: list[object], says: str
) -> None:
    path = tmp_path / "s.parquet"
    write_scores(ranked([0.1, 0.2]), path, key="", about={})
    written_again(path, name, values)
    with pytest.raises(DataError, match=f'the column "{name}" must {says}'):
        read_scores(path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (Path.unlink, "got no such file"),
        (lambda path: pq.write_table(pa.table({"a": [1]}), path), "format of scores must be 1, got None"),
        (
            lambda path: write_scores(ranked([0.1, np.nan]), path, key="", about={}),
            "values of nDCG@10 by cosine that are not finite",
        ),
        *((partial(truncated, share=share), UNDAMAGED) for share in (0.0, 0.5, 0.9)),
        (without_values, UNDAMAGED),
        *(
            (partial(recorded, change=change), UNDAMAGED)
            for change in ({"about": None}, {"key": 3}, {"units": 5})
        ),
        *(
            (partial(recorded, change={"samples": of}), UNDAMAGED)
            for of in ([], [{**OURS, "statistic": "zzz"}])
        ),
        (
            partial(recorded, change={"samples": [{**OURS, "proportion": "no"}]}),
            r"samples\.0\.proportion must be true or false, got 'no'",
        ),
    ],
)
def test_damaged_and_foreign_files_are_refused(
    tmp_path: Path, damage: Callable[[Path], object], says: str
) -> None:
    path = tmp_path / "s.parquet"
    write_scores(ranked([0.1, 0.2]), path, key="", about={})
    damage(path)
    with pytest.raises(DataError, match=says):
        read_scores(path)


def test_every_flipped_byte_is_refused_by_name_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    write_scores(ranked([0.1, 0.2, 0.3]), path, key="", about={})
    whole, values = path.read_bytes(), ranked([0.1, 0.2, 0.3]).samples[0].values.tolist()
    refused = []
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert read_scores(path).samples[0].values.tolist() == values
        except DataError as fault:
            refused.append(str(fault))
    assert all(str(path) in sentence for sentence in refused)
    # All but those in the name of the checksum itself, without which a file is one of an earlier version.
    assert len(whole) - len(refused) <= len("checksum")


def test_files_are_found_sorted_without_those_half_written(tmp_path: Path) -> None:
    for name in ("b/run-1/x", "a/y", "a/.z.parquet.77"):
        write_scores(ranked([0.1]), tmp_path / f"{name}.parquet", key="", about={})
    found = [str(path.relative_to(tmp_path)) for path in score_files(tmp_path)]
    assert found == ["a/y.parquet", "b/run-1/x.parquet"]


def test_folders_have_one_name_in_any_order() -> None:
    names = ["a/b", "a:b", "plain", "A-B"]
    found = dict(zip(names, folder_names(names), strict=True))
    assert found["plain"] == "plain"
    assert len({name.casefold() for name in found.values()}) == 4
    assert dict(zip(reversed(names), folder_names(names[::-1]), strict=True)) == found
    assert len(set(folder_names(["t", "t", "t-2"]))) == 3


def test_folders_have_names_that_a_disk_takes(tmp_path: Path) -> None:
    (long,) = folder_names(["\U0001d4b3" * 300])
    write_scores(ranked([0.1]), tmp_path / long / f"{long}.parquet", key="", about={})


def test_scores_of_an_evaluation_are_back_where_its_result_could_not_be_written(tmp_path: Path) -> None:
    models = {"model": "m", "baseline": ""}
    with replacing_scores([Scored("model", ranked([0.1]))], tmp_path, models=models):
        (tmp_path / "result.json").write_text("{}")

    def failing() -> None:
        with replacing_scores([Scored("model", ranked([0.2]))], tmp_path, models=models):
            raise DataError("full")

    with pytest.raises(DataError, match="full"):
        failing()
    assert read_scores(tmp_path / "scores" / "model" / "asked.parquet").samples[0].values.tolist() == [0.1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json", "scores"]


def test_scores_of_an_evaluation_that_was_killed_before_its_result_are_replaced(tmp_path: Path) -> None:
    refuse_foreign_scores(tmp_path)
    for side in ("model", "model/run 1", "baseline"):
        write_scores(ranked([0.1]), tmp_path / "scores" / side / "asked.parquet", key="", about={})
    refuse_foreign_scores(tmp_path)


def not_a_table(path: Path) -> None:
    path.write_text("mine", encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("exam.csv", not_a_table),
        ("model/exam.parquet", not_a_table),
        # A suite may have a model of that name.
        ("model/listed.parquet", partial(write_scores, ranked([0.1]), key="0123", about={})),
    ],
    ids=["another file", "no table", "of a suite"],
)
def test_files_of_others_are_not_replaced(tmp_path: Path, name: str, write: Callable[[Path], object]) -> None:
    path = tmp_path / "scores" / name
    path.parent.mkdir(parents=True)
    write(path)
    told = f"must hold no scores except those of an earlier evaluation, got .*{path.name}"
    with pytest.raises(JobError, match=told):
        refuse_foreign_scores(tmp_path)
