"""What public functions take: paths or what lies there, rows in memory, settings by keyword; and what they
refuse.
"""

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pytest

import adiabat
from adiabat.api import arguments, distill_verb, experiment_verbs
from adiabat.api.arguments import data_of, path_of, settings_of, sources_of
from adiabat.config.dataset_settings import MineSettings
from adiabat.config.distillation import FitSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.section import Section, nest, overlaid, value_at
from adiabat.config.shared import EmbedSettings, EvaluateSettings
from adiabat.config.sweeps import TrainSweepSettings, TuneSweepSettings
from adiabat.config.tasks import SpaceSettings, SuiteSettings
from adiabat.config.training_choices import Negatives
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import AdiabatError, ConfigError, DataError, JobError
from adiabat.core.progress import Watch
from adiabat.data.records import text_id
from adiabat.distillation import student
from adiabat.results.record import read_result
from tests.commands import here as here
from tests.commands import lines, other_pairs, own_world
from tests.pages import no_page as no_page

world = own_world

ROWS = [{"_id": "a", "text": "one", "year": 1}, {"_id": "b", "text": "two", "year": None}]


def tune_settings(settings: Any = None, **options: Any) -> TuneSettings:
    return settings_of(TuneSettings, settings, options, section="tune", function="tune")


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        tuple(ROWS),
        (row for row in ROWS),
        datasets.Dataset.from_list(ROWS),
        pandas.DataFrame(
            {"_id": ["a", "b"], "text": ["one", "two"], "year": pandas.Series([1, None], dtype=object)}
        ),
    ],
    ids=["list", "tuple", "generator", "Dataset", "DataFrame"],
)
def test_rows_in_memory_are_a_file_named_by_its_content(rows: Any) -> None:
    path = Path(data_of(rows, "data"))
    assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS
    assert data_of(ROWS, "data") == str(path)
    assert data_of([*ROWS, ROWS[0]], "data") != str(path)


def test_cells_of_numpy_and_missing_numbers_are_plain() -> None:
    frame = pandas.DataFrame(
        {"query": ["q"], "pos": [np.array(["a", "b"])], "score": [np.float32(0.5)], "label": [float("nan")]}
    )
    (row,) = (json.loads(line) for line in Path(data_of(frame, "data")).read_text().splitlines())
    assert row == {"query": "q", "pos": ["a", "b"], "score": 0.5, "label": None}


@pytest.mark.parametrize(
    ("cell", "plain"),
    [
        *(
            (cell, None)
            for cell in (
                pandas.NA,
                pandas.NaT,
                np.datetime64("NaT"),
                np.float32("nan"),
                Decimal("NaN"),
                float("nan"),
            )
        ),
        ([1.5, float("nan")], [1.5, None]),
        (np.array([1.5, np.nan], dtype=np.float32), [1.5, None]),
        ({"a": np.int64(3), "b": (np.bool_(True),)}, {"a": 3, "b": [True]}),
        (pandas.Timestamp("2020-01-02"), "2020-01-02 00:00:00"),
        (np.datetime64("2020-01-02", "ns"), "2020-01-02 00:00:00"),
        (date(2020, 1, 2), "2020-01-02"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_a_cell_is_written_in_the_types_of_json(cell: Any, plain: Any) -> None:
    (line,) = Path(data_of([{"cell": cell}], "data")).read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail) == {"cell": plain}


NO_CELLS = [b"x", {1, 2}, object(), np.bytes_(b"x"), 1j, np.timedelta64(1, "ns"), [b"x"], np.longdouble(1)]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        *(({"cell": cell}, "a cell in a row of data must be a text, number") for cell in NO_CELLS),
        ({1: "x"}, "a key in a row of data must be a text, got 1 "),
        ({"cell": {None: "x"}}, "a key in a row of data must be a text, got None "),
    ],
)
def test_what_has_no_type_in_json_is_refused(row: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        data_of([row], "data")


def test_a_cache_that_cannot_be_written_is_named_with_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        DataError, match=r"file/adiabat/rows must be writable, got Not a directory; .* XDG_CACHE_HOME"
    ):
        data_of(ROWS, "data")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="none"):
        data_of(map(json.loads, (Path(name).read_text() for name in ["none"])), "data")


def test_texts_of_a_corpus_go_by_their_hash() -> None:
    (row,) = (json.loads(line) for line in Path(data_of(["one"], "corpus")).read_text().splitlines())
    assert row == {"_id": text_id("one"), "text": "one"}


def test_sources_are_one_path_several_or_rows() -> None:
    assert sources_of("a.jsonl", "texts") == ["a.jsonl"]
    assert sources_of(["a.jsonl", Path("b.jsonl")], "texts") == ["a.jsonl", "b.jsonl"]
    assert sources_of(ROWS, "texts") == [data_of(ROWS, "texts")]
    assert sources_of((), "texts") == []


@pytest.mark.parametrize(
    "value",
    [7, None, {"query": "q"}, b"x", [1, 2], datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS))],
)
def test_what_is_no_data_is_named_with_its_type(value: Any) -> None:
    kind = "int" if isinstance(value, list) else type(value).__name__
    with pytest.raises(TypeError, match=rf"data must be .*, got .*\({kind}\)$"):
        data_of(value, "data")
    assert data_of("hf:name", "data") == "hf:name"


def test_no_rows_are_refused() -> None:
    with pytest.raises(DataError, match="data must hold at least one row"):
        data_of([], "data")


def test_a_keyword_is_a_setting_or_a_section() -> None:
    settings = tune_settings(
        learning_rate=2e-6, seed=3, run={"device": "cpu"}, validation=Path("dev.jsonl"), max_epochs=None
    )
    assert (settings.tune.learning_rate, settings.run.seed, settings.run.device) == (2e-6, 3, "cpu")
    assert (settings.data.validation, settings.tune.max_epochs) == (
        "dev.jsonl",
        TuneSettings().tune.max_epochs,
    )


def test_keywords_are_laid_over_a_file_over_dicts_and_over_settings(tmp_path: Path) -> None:
    file = tmp_path / "tune.toml"
    file.write_text("[tune]\nbatch_size = 5\nmax_epochs = 2\n")
    table = {"tune": {"batch_size": 5, "max_epochs": 2}}
    for given in (file, str(file), table, checked(TuneSettings, table)):
        settings = tune_settings(given, batch_size=7, tune={"max_epochs": 3})
        assert (settings.tune.batch_size, settings.tune.max_epochs) == (7, 3)
    assert table == {"tune": {"batch_size": 5, "max_epochs": 2}}


@pytest.mark.parametrize(
    ("kind", "section", "key", "table"),
    [
        (TuneSettings, "tune", "guard", {"limit": 0.1}),
        (TuneSettings, "tune", "rehearsal", {"weight": 2.0}),
        (TuneSweepSettings, "sweep", "probes", {"depth": 50}),
        (MineSettings, "mine", "judge", {"model": "other"}),
        (SpaceSettings, "space", "space.map", {"queries": 50}),
        (TrainSettings, "train", "data.stream", {"shard_size": 99}),
        (TrainSettings, "train", "train.loss.guide", {"model": "self"}),
    ],
)
def test_none_keeps_an_optional_table_and_false_switches_it_off(
    kind: type[Section], section: str, key: str, table: dict[str, Any]
) -> None:
    more: dict[str, Any] = (
        {"data": {"validation": "dev.jsonl"}, "train": {"steps": 9}} if kind is TrainSettings else {}
    )
    settings = overlaid(kind, more, nest(key.split("."), table))
    name = key.rpartition(".")[2]

    def chosen(value: Any) -> Any:
        return value_at(settings_of(kind, settings, {name: value}, section=section, function=section), key)

    assert chosen(None).model_dump(exclude_unset=True) == table
    assert chosen(table) == chosen(None)
    assert chosen(False) is None


def test_wrong_settings_are_all_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"2 faults: .*tune\.batch_size.*tune\.max_epochs"):
        tune_settings(batch_size=0, max_epochs=-1)


def test_wrong_settings_of_a_file_are_told_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "tune.toml"
    file.write_text("[guard]\nmost = 1\n")
    with pytest.raises(ConfigError, match=r"tune\.toml: unknown key guard\.most; .* adiabat\.upgrade\("):
        tune_settings(file)
    file.write_text("[tune]\nbatch_size = 0\n")
    with pytest.raises(
        ConfigError, match=r"tune\.toml and keywords: 2 faults: .*tune\.batch_size.*tune\.max_epochs"
    ):
        tune_settings(str(file), max_epochs=-1)


NO_KEYWORD = r"tune\(\) has no argument or setting"


@pytest.mark.parametrize(
    ("settings", "options", "said"),
    [
        (None, {"batchsize": 3}, f"{NO_KEYWORD} batchsize; did you mean batch_size\\?"),
        (None, {"pull": 0.1}, f"{NO_KEYWORD} pull; it is tune.l2_to_start today$"),
        (None, {"ladder": {"low": 1e-7}}, f"{NO_KEYWORD} ladder; it is rate_search today$"),
        (None, {"run": 3}, r"run must be a dict of settings, got 3 \(int\)"),
        (7, {}, r"settings must be TuneSettings, a path of a TOML file or a dict, got 7 \(int\)"),
        (EvaluateSettings(), {}, "settings must be TuneSettings, .* got EvaluateSettings"),
    ],
)
def test_a_keyword_or_settings_of_another_kind_are_refused(
    settings: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        tune_settings(settings, **options)


def test_a_key_of_several_sections_is_the_verbs_own_or_asks_for_one() -> None:
    with pytest.raises(
        TypeError,
        match=r"distill_fit\(\) takes pooling as encoder.pooling or teacher.pooling; write encoder=",
    ):
        settings_of(FitSettings, None, {"pooling": "cls"}, section="train", function="distill_fit")
    assert (
        settings_of(
            FitSettings, None, {"pooling": "cls"}, section="teacher", function="distill_fit"
        ).teacher.pooling
        == "cls"
    )
    tuned = tune_settings(temperature=0.1, loss="in_batch_softmax", per_query=2, negatives="hardest")
    assert tuned.tune.model_dump()["loss"] == {
        "kind": "in_batch_softmax",
        "temperature": 0.1,
        "distance": None,
        "hardness": 0.0,
    }
    assert tuned.tune.negatives == Negatives(kind="hardest", per_query=2)


def test_what_a_function_returns_stands_for_its_path(here: Path) -> None:
    lines(here / "rest.jsonl", other_pairs("held", 12))
    store = adiabat.embed("model", "corpus.jsonl", "store")
    options = {"recipe": "paper", "max_epochs": 1, "batches_per_epoch": 2, "validation_fraction": 0.4}
    job = adiabat.tune("model", store, "pairs.jsonl", out="job", **options)
    assert job is not None
    assert (path_of(store, "store"), path_of(job, "model")) == ("store", "job")
    evaluation = adiabat.evaluate(
        job, store, "pairs.jsonl", baseline="model", retain=[(store, "rest.jsonl")], out="out", resamples=100
    )
    assert evaluation.page == Path("out/report.html")
    assert evaluation.page.is_file()
    assert read_result(Path("out/result.json")).page == evaluation.page
    assert job.command == "adiabat.tune(...)"
    assert list(adiabat.search(store, "hello", model=job, compare=["model"], k=2).hits) == ["job", "model"]
    vectors = adiabat.load(job).encode_query(["hello"])
    assert (vectors.dtype, vectors.shape) == (np.float32, (1, 32))


def test_models_of_the_same_name_have_their_hits_each(here: Path) -> None:
    store = adiabat.embed("model", "corpus.jsonl", "store")
    found = adiabat.search(store, "hello", model="model", compare=["model", adiabat.load("model")], k=2)
    assert list(found.hits) == ["model", "model (2)"]
    assert found.hits["model"] == found.hits["model (2)"]


def test_sections_among_the_keywords_of_distill_stay_beside_the_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr(distill_verb, "require_student", lambda *_, **__: None)
    monkeypatch.setattr(student, "teach", lambda settings, **_: jobs.append(settings) or 1 / 0)  # type: ignore[func-returns-value]
    with pytest.raises(ZeroDivisionError):
        adiabat.distill_fit("t", "s", texts="b.jsonl", distill={"out": "o"}, data={"queries": ["q.jsonl"]})
    with pytest.raises(ZeroDivisionError):
        adiabat.distill_multilingual("t", "s", parallel="p.tsv", distill={"out": "o"}, data={"source": "de"})
    assert [(job.distill.student, job.distill.out) for job in jobs] == [("s", "o")] * 2
    assert (jobs[0].data.texts, jobs[0].data.queries) == (("b.jsonl",), ("q.jsonl",))
    assert (jobs[1].data.parallel, jobs[1].data.source) == (("p.tsv",), "de")
    with pytest.raises(TypeError, match="data must be a dict of settings, got 3"):
        adiabat.distill_fit("t", "s", data=3)


def test_a_result_is_a_text_and_a_frame(here: Path) -> None:
    evaluation = adiabat.evaluate("model", "store", "pairs.jsonl", baseline="model", resamples=100)
    lines = [" ".join(line.split()) for line in evaluation.summary().splitlines()]
    assert lines[0] == "model on pairs"
    assert any("target: pairs" in line and "not worse" in line for line in lines)
    assert lines[-1].startswith("note: ")
    frame = evaluation.to_frame()
    assert set(frame["dataset"]) == {"pairs"}
    assert frame.set_index("measure").loc["RR@10", "after"] == evaluation.datasets[0].changes[-1].after
    found = adiabat.search("store", "hello", model="model", k=3)
    assert found.to_frame()["doc_id"].tolist() == [hit.doc_id for hit in found]
    with pytest.raises(JobError, match="was not saved"):
        evaluation.page  # noqa: B018


def test_rows_in_memory_are_tuned_on_and_measured(here: Path) -> None:
    papers = pandas.read_json("corpus.jsonl", lines=True)
    store = adiabat.embed("model", papers, out="frame")
    assert store.same_documents(adiabat.embed("model", "corpus.jsonl", out="store"))
    pairs = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]
    options = {"recipe": "paper", "max_epochs": 1, "batches_per_epoch": 2, "validation_fraction": 0.4}
    notes: list[str] = []
    adiabat.tune("model", store, pairs, out="job", progress=Watch(note=notes.append), **options)
    adiabat.tune("model", store, pairs, out="job", resume=True, **options)
    assert any("20 queries" in note or "queries of rows-" in note for note in notes)
    assert (
        adiabat.evaluate("job", store, datasets.Dataset.from_list(pairs), resamples=100).datasets[0].queries
        == 20
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: adiabat.tune(3, "store", "pairs.jsonl", "new"), r"model must be a model: .*, got 3 \(int\)"),
        (lambda: adiabat.tune("model", 3, "pairs.jsonl", "new"), r"store must be a path, .*, got 3 \(int\)"),
        (lambda: adiabat.embed("model", "corpus.jsonl", 3), r"out must be a path, .*, got 3 \(int\)"),
        (
            lambda: adiabat.search("store", ["a"], model="model"),
            r"query must be a text, got \['a'\] \(list\)",
        ),
        (
            lambda: adiabat.search("store", "a", model="model", k="3"),
            r"k must be a whole number, got '3' \(str\)",
        ),
        (lambda: adiabat.train("model", job="x"), r"job must be a dict of settings, got 'x' \(str\)"),
        (
            lambda: adiabat.evaluate("m", "s", "d", retain=("store", "data")),
            r"retain must be a list of pairs .*, got \('store', 'data'\)",
        ),
        (
            lambda: adiabat.evaluate("m", "s", "d", baseline_stores="st"),
            r"baseline_stores must be a list of stores, got 'st' \(str\)",
        ),
        (
            lambda: adiabat.embed("model", "corpus.jsonl", "new", progress=3),
            r"progress must be True, False or None, got 3 \(int\)",
        ),
        (lambda: adiabat.load(3), r"model must be .*, got 3 \(int\)"),
        (lambda: adiabat.load("model").encode_query("a"), r"texts must be a list of texts, got 'a' \(str\)"),
    ],
)
def test_a_wrong_type_is_one_clear_error(here: Path, call: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()


def test_a_rate_among_the_keywords_of_safe_rate_and_a_job_without_settings_are_told(here: Path) -> None:
    adiabat.embed("model", "corpus.jsonl", "store")
    for options, told in (
        ({"tune": {"learning_rate": 1e-6}}, r"^tune\.learning_rate has no effect with rate_search"),
        ({"tune": {"learning_rate": "range"}}, r"^tune\.learning_rate must be a number > 0, .*got .range"),
        ({"guard": False}, r'^guard must be on with rate_search = "safe", .*got false'),
    ):
        with pytest.raises(ConfigError, match=told):
            adiabat.safe_rate("model", "store", "pairs.jsonl", "search", **options)
    with pytest.raises(ConfigError, match=r"job\.data"):
        adiabat.train("model", job=None)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {"sweep": {"verb": "train"}}),
        ({}, {"verb": "train"}),
        ({"sweep": {"verb": "train"}}, {}),
        (TrainSweepSettings.model_construct(), {}),
    ],
)
def test_a_sweep_is_of_the_verb_that_keywords_settings_or_their_type_name(
    settings: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[Any] = []
    monkeypatch.setattr(experiment_verbs, "settings_of", lambda kind, *_, **__: kinds.append(kind) or 1 / 0)  # type: ignore[func-returns-value]
    with pytest.raises(ZeroDivisionError):
        adiabat.sweep(settings, **options)
    assert kinds == [TrainSweepSettings]


def test_a_sweep_reads_its_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sweep.toml").write_text('[sweep]\nverb = "train"\n', encoding="utf-8")
    read: list[Path] = []
    real = arguments.read_table
    monkeypatch.setattr(arguments, "read_table", lambda path, kind: read.append(path) or real(path, kind))  # type: ignore[func-returns-value]
    with pytest.raises(ConfigError, match="tasks must be given"):
        adiabat.sweep(tmp_path / "sweep.toml", out=tmp_path / "out")
    assert read == [tmp_path / "sweep.toml"]


def test_progress_is_shown_where_it_is_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adiabat.embed("model", "corpus.jsonl", "store")
    assert capsys.readouterr().err == ""
    adiabat.embed("model", "corpus.jsonl", "store", progress=True)
    assert "finished before" in capsys.readouterr().err
    assert settings_of(EmbedSettings, None, {}, section="store", function="embed") == EmbedSettings()


def test_paths_are_taken_in_nested_dicts_and_lists_of_them() -> None:
    task = {"kind": "retrieval", "name": "t", "data": Path("q.jsonl"), "corpus": Path("c.jsonl")}
    models = [{"name": "job", "model": Path("runs/job")}]
    suite = {"models": models, "suite": {"stores": Path("stores")}, "tasks": [task]}
    settings = settings_of(SuiteSettings, suite, {}, section="suite", function="evaluate_suite")
    assert settings.models[0].model == "runs/job"
    assert settings.suite.stores == "stores"


def test_a_path_that_no_file_can_have_is_refused_at_every_door() -> None:
    calls: list[Callable[[], object]] = [
        lambda: adiabat.embed("demo", "corpus\0", "new"),
        lambda: adiabat.embed("demo", "corpus.jsonl", "new\0"),
        lambda: adiabat.load("demo\0"),
        lambda: adiabat.Store.open("store\0"),
        lambda: adiabat.tune("demo", "store\0", "pairs.jsonl", "new"),
        lambda: adiabat.evaluate("demo\0", "store", "pairs.jsonl"),
        lambda: adiabat.search("store\0", "hello", model="demo"),
        lambda: adiabat.compare("first\0", "second"),
        lambda: adiabat.distill_static("demo", "new", vocabulary="words\0"),
        lambda: adiabat.sweep("sweep\0", out="new"),
    ]
    for call in calls:
        with pytest.raises(AdiabatError, match="a path without a zero byte|text without control characters"):
            call()
    for call in (
        lambda: adiabat.embed("demo", "", "new"),
        lambda: adiabat.tune("demo", "store", "pairs.jsonl", ""),
    ):
        with pytest.raises(ConfigError, match="must be a path, got an empty text"):
            call()


def test_settings_nested_3000_deep_are_one_line() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"a": deep}
    for given in ({"settings": deep}, {"tune": deep}):
        with pytest.raises(ConfigError, match="settings must nest at most a few tables"):
            settings_of(
                TuneSettings,
                given.get("settings"),
                {"tune": given.get("tune")},
                section="tune",
                function="tune",
            )
