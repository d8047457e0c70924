"""Settings as files have them: marks of editors, tables in place of lists, and faults told by the table of a
list they are in.
"""

import difflib
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked, inline, leaves, read_settings, with_values
from adiabat.config.section import Section
from adiabat.config.shared import EmbedSettings, EvaluateSettings
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError

RUN = '[job]\nmodel = "Zürich"\n'
SOURCES = [{"path": "a.jsonl"}, {"path": "b.jsonl"}]


def fault(table: dict[str, Any], kind: type[Section] = TrainSettings) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(kind, table)
    return str(caught.value)


# --- Bytes ---


@pytest.mark.parametrize(
    "content", [RUN.encode(), RUN.encode("utf-8-sig"), RUN.replace("\n", "\r\n").encode("utf-8-sig")]
)
def test_a_file_is_read_with_a_byte_order_mark_and_with_either_line_end(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "RUN.toml").write_bytes(content)
    assert read_settings(TrainSettings, tmp_path / "RUN.toml").job.model == "Zürich"


# --- Values and their keys ---

KEY = some.text("abc_", min_size=1, max_size=3)
PLAIN = some.one_of(
    some.booleans(),
    some.integers(-(2**63), 2**63 - 1),
    some.floats(allow_nan=False, allow_infinity=False),
    some.text(some.characters(exclude_categories=["Cs"])),
)
VALUE = some.recursive(PLAIN, lambda inner: some.lists(inner, max_size=3), max_leaves=5)
TABLE = some.recursive(
    some.dictionaries(KEY, VALUE, min_size=1, max_size=3),
    lambda inner: some.dictionaries(KEY, some.one_of(VALUE, inner), min_size=1, max_size=3),
    max_leaves=5,
)


@given(TABLE)
def test_a_value_on_one_line_of_toml_is_read_as_it_was(table: dict[str, Any]) -> None:
    line = f"value = {inline(table)}"
    assert "\n" not in line
    assert tomllib.loads(line) == {"value": table}


@given(some.dictionaries(KEY, some.dictionaries(KEY, PLAIN, min_size=1), min_size=1))
def test_a_table_is_its_values_under_their_dotted_keys(table: dict[str, Any]) -> None:
    assert with_values(None, {}, leaves(table)) == table


# --- Lists of tables ---


@pytest.mark.parametrize("tables", [1, 2])
def test_single_brackets_where_a_list_of_tables_belongs_are_told_as_that(tables: int, tmp_path: Path) -> None:
    (tmp_path / "RUN.toml").write_text(RUN + '[data.sources]\npath = "a.jsonl"\n' * tables, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_settings(TrainSettings, tmp_path / "RUN.toml")
    told = (
        "data.sources must be a list of tables, got the single table [data.sources]; "
        "double its brackets: [[data.sources]]"
    )
    assert str(caught.value).removeprefix(f"{tmp_path / 'RUN.toml'}: ") == told


def test_a_table_inside_a_table_of_a_list_has_single_brackets(tmp_path: Path) -> None:
    file = tmp_path / "RUN.toml"
    file.write_text('[[data.sources]]\npath = "a"\n[data.sources.columns]\nquery = "q"\n', encoding="utf-8")
    assert read_settings(TrainSettings, file).data.sources[0].columns.query == "q"
    file.write_text(file.read_text() + "x\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="RUN.toml must be TOML: "):
        read_settings(TrainSettings, file)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (
            {"path": "b.jsonl", "weight": -1},
            "data.sources.weight of number 2 (b.jsonl) must be > 0, got -1; the default is 1.0",
        ),
        ({"path": "", "weight": 1.0}, "data.sources.path of number 2 must be text that is not empty, got ''"),
        ({"weight": 1.0}, "data.sources.path of number 2 must be given, got none"),
        ({"path": "b", "split": 3}, "data.sources.split of number 2 (b) must be text (in quotes), got 3"),
        ("b.jsonl", "data.sources must be a table of settings, got 'b.jsonl'; the default is []"),
        (
            {"path": "b", "columns": {"query": "text", "negative": "text"}},
            "data.sources.columns.query of number 2 (b) must be a different column from "
            "negative, got 'text' for both; name the column of "
            "each",
        ),
    ],
)
def test_a_fault_of_a_source_says_which_source(second: Any, told: str) -> None:
    assert fault({"data": {"sources": [{"path": "a.jsonl"}, second]}}) == told


@pytest.mark.parametrize(
    "table",
    [
        {"sources": [*SOURCES, {"path": "./a.jsonl"}]},
        {"split": "train", "sources": [*SOURCES, {"path": "a.jsonl", "split": "train"}]},
        {
            "columns": {"query": "q"},
            "sources": [*SOURCES, {"path": "a.jsonl", "weight": 2.0, "columns": {"query": "q"}}],
        },
    ],
)
def test_a_source_is_listed_once(table: dict[str, Any]) -> None:
    told = fault({"data": table, "mixture": {"rule": "weights"}})
    assert told.startswith(
        "data.sources must list each source once, got a.jsonl as numbers 1 and 3; leave one out"
    )


@pytest.mark.parametrize(
    "other", [{"split": "dev"}, {"columns": {"positive": "title"}}, {"corpus": "c.jsonl"}]
)
def test_a_file_gives_several_sources_where_something_else_is_read_of_it(other: dict[str, Any]) -> None:
    settings = checked(TrainSettings, {"data": {"sources": [*SOURCES, {"path": "a.jsonl", **other}]}})
    assert len(settings.data.listed()) == 3


def test_what_a_source_leaves_out_is_that_of_all() -> None:
    table = {
        "split": "train",
        "columns": {"query": "q"},
        "sources": [{"path": "a"}, {"path": "b", "split": "dev", "corpus": "c"}],
    }
    first, second = checked(TrainSettings, {"data": table}).data.listed()
    assert (first.path, first.split, first.corpus, first.columns.query) == ("a", "train", None, "q")
    assert (second.path, second.split, second.corpus, second.columns.query) == ("b", "dev", "c", "q")
    (alone,) = checked(
        TrainSettings, {"job": {"data": "d"}, "data": {"split": "s", "corpus": "c"}}
    ).data.listed("d")
    assert (alone.path, alone.split, alone.corpus) == ("d", "s", "c")


# --- Columns ---


@pytest.mark.parametrize("kind", [TrainSettings, EvaluateSettings, EmbedSettings])
@pytest.mark.parametrize(
    ("one", "other"), [("query", "positive"), ("query", "negative"), ("positive", "negative")]
)
def test_one_column_cannot_stand_for_both_sides(kind: type[Section], one: str, other: str) -> None:
    told = (
        f"data.columns.{one} must be a different column from {other}, got "
        "'text' for both; name the column of each"
    )
    assert fault({"data": {"columns": {one: "text", other: "text"}}}, kind) == told


def test_columns_of_examples_and_of_their_corpus_may_have_one_name() -> None:
    columns = {"query": "text", "text": "text", "query_id": "id", "doc_id": "id"}
    assert checked(TrainSettings, {"data": {"columns": columns}}).data.columns.given() == columns


# --- Unknown keys ---


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("lr", "learning_rate"),
        ("bs", "batch_size"),
        ("wd", "weight_decay"),
        ("temp", "loss.temperature"),
        ("max_steps", "steps"),
    ],
)
def test_an_abbreviation_is_answered_with_the_key_that_it_stands_for(key: str, nearest: str) -> None:
    assert fault({"train": {key: 1}}) == f"unknown key train.{key}; did you mean train.{nearest}?"


def test_twenty_thousand_unknown_keys_are_counted_and_the_first_advised_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sought: list[str] = []
    real = difflib.get_close_matches
    monkeypatch.setattr(
        difflib,
        "get_close_matches",
        lambda word, *rest, **more: sought.append(str(word)) or real(word, *rest, **more),
    )
    path = tmp_path / "settings.toml"
    path.write_text(
        "[tune]\n" + "".join(f"learning_rte{n} = 1\n" for n in range(20_000)) + "[tunes]\na = 1\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError, match=r"toml: 20001 faults: .* did you mean .*; and 19991 more; "):
        read_settings(TuneSettings, path)
    assert 0 < len(set(sought)) <= 10


def test_an_unknown_key_of_a_file_is_answered_with_the_upgrade_of_earlier_files(tmp_path: Path) -> None:
    (tmp_path / "tune.toml").write_text("[guard]\nmost = 0.1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tune\.toml: unknown key guard\.most.*earlier version.*upgrade"):
        read_settings(TuneSettings, tmp_path / "tune.toml")
    (tmp_path / "tune.toml").write_text("[guard]\nlimit = -1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"guard\.limit must") as caught:
        read_settings(TuneSettings, tmp_path / "tune.toml")
    assert "upgrade" not in str(caught.value)
