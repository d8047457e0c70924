"""Settings of a suite: what tasks and models may say, and how a fault in one of them is told."""

from typing import Any

import pytest

from adiabat.config.reader import checked, read_settings
from adiabat.config.tasks import (
    ClassificationTask,
    RetrievalTask,
    StsTask,
    SuiteSettings,
    named_suites,
    suite_file,
)
from adiabat.core.errors import ConfigError

KINDS = (
    "retrieval, triplets, nli_grid, question_grid, sts, words, pair_classification, "
    "bitext, classification, clustering, mteb"
)


def told(table: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(SuiteSettings, table)
    return str(caught.value)


def test_a_table_of_tasks_becomes_what_its_kind_says() -> None:
    settings = checked(
        SuiteSettings,
        {"tasks": [{"kind": "sts", "data": "a", "where": {"lang": "de"}}, {"kind": "triplets", "data": "b"}]},
    )
    assert [type(task) for task in settings.tasks] == [StsTask, RetrievalTask]
    assert settings.tasks[0].where == {"lang": "de"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("task", "phrase"),
    [
        (
            {"kind": "stss", "data": "x"},
            f"tasks.kind of number 1 must be one of {KINDS}, got 'stss'; did you mean sts?",
        ),
        ({"data": "x"}, f"tasks.kind of number 1 must be one of {KINDS}, got none; write one of them"),
        ({"kind": "sts"}, "tasks.data of number 1 must be given, got none"),
        ({"kind": "sts", "data": "x", "scre": "y"}, "unknown key tasks.scre; did you mean tasks.score?"),
        (
            {"kind": "triplets", "data": "x", "drop_same_id": False},
            'tasks.drop_same_id of number 1 has no effect with tasks.kind = "triplets", '
            "whose queries rank only listed documents; "
            'leave it out, or set tasks.kind = "retrieval"',
        ),
        (
            {"kind": "sts", "name": "mine", "data": ""},
            "tasks.data of number 1 (mine) must be text that is not empty, got ''",
        ),
    ],
)
def test_a_fault_of_a_task_is_told_by_its_key_and_number(task: dict[str, Any], phrase: str) -> None:
    assert told({"tasks": [task]}) == phrase


LEARNED = {"kind": "classification", "data": "x", "test": "x"}


@pytest.mark.parametrize(
    "rows",
    [
        {},
        {"where": {"lang": "en", "split": "train"}},
        {"where": {"lang": "en", "split": "train"}, "test_where": {"lang": "en"}},
        {"where": {"lang": "en"}, "test_where": {"split": "test"}},
        {"test_where": {"split": "test"}},
        {"split": "a", "test_split": "a"},
    ],
)
def test_a_classifier_is_not_tried_on_rows_that_it_learned_from(rows: dict[str, Any]) -> None:
    message = told({"tasks": [{**LEARNED, **rows, "name": "mine"}]})
    assert message.startswith(
        "tasks.test_where of number 1 (mine) must select other rows than where "
        "does, since test and data are the same"
    )
    assert message.endswith("; give a column of where another value here, or set test_split")


@pytest.mark.parametrize(
    "rows",
    [
        {"where": {"lang": "en", "split": "train"}, "test_where": {"lang": "en", "split": "test"}},
        {"where": {"split": "train"}, "test_where": {"split": "test", "lang": "en"}},
        {"split": "a", "test_split": "b"},
        {"test": "y", "where": {"lang": "en"}},
    ],
)
def test_rows_of_one_table_that_are_told_apart_will_do(rows: dict[str, Any]) -> None:
    (task,) = checked(SuiteSettings, {"tasks": [{**LEARNED, **rows}]}).tasks
    assert isinstance(task, ClassificationTask)
    assert dict(task.test_where) == rows.get("test_where", {})


def test_faults_of_several_tasks_and_models_are_told_at_once() -> None:
    message = told(
        {
            "tasks": [{"kind": "sts"}, {"kind": "no"}],
            "models": [{"model": "demo"}],
            "measure": {"resamples": 5},
        }
    )
    assert message.startswith("4 faults: ")
    assert "tasks.kind of number 2 must be one of" in message
    assert "models.name of number 1 must be given, got none" in message


@pytest.mark.parametrize("key", ["tasks", "models"])
def test_names_are_given_once(key: str) -> None:
    entry = {"tasks": {"kind": "sts", "data": "x", "name": "n"}, "models": {"name": "n", "model": "demo"}}[
        key
    ]
    assert (
        told({key: [entry, entry]})
        == f"{key} must have names of their own, got 'n' more than once; rename them"
    )


def test_a_suite_is_a_file_or_comes_with_the_package() -> None:
    for name, path in named_suites().items():
        assert suite_file(name) == path
        assert read_settings(SuiteSettings, path).tasks
    assert str(suite_file("mine.toml")) == "mine.toml"
    with pytest.raises(
        ConfigError, match="suite must be a TOML file or .*, got mteb-eigt; did you mean mteb-eight"
    ):
        suite_file("mteb-eigt")
