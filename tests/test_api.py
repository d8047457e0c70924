"""The verbs as functions: what they take, what they refuse before any work, and what they leave behind."""

import inspect
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.cli.panel_results import KINDS, kind_of
from adiabat.config.reader import checked, keys_of
from adiabat.config.shared import EncoderSection
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import Watch
from adiabat.evaluation import evaluate as evaluation
from adiabat.models import model_names
from adiabat.models.towers import DualEncoder
from adiabat.results.record import read_result
from adiabat.store import ingestion
from adiabat.store.vector_store import Store
from tests.commands import inputs, lines, other_pairs, write_world
from tests.tiny import edit, save_tiny

SHORT = checked(
    TuneSettings,
    {
        "tune": {"recipe": "paper", "max_epochs": 1, "batches_per_epoch": 2},
        "data": {"validation_fraction": 0.4},
    },
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    write_world(folder)
    adiabat.tune(*inputs(folder), folder / "job", settings=SHORT)
    return folder


@pytest.fixture(scope="module")
def model(here: Path) -> DualEncoder:
    return adiabat.load(here / "model")


def test_a_model_that_is_loaded_already_is_taken_as_it_is(here: Path, model: DualEncoder) -> None:
    by_name = adiabat.search(here / "store", "hello", model=here / "model", k=3)
    assert list(adiabat.search(here / "store", "hello", model=model, k=3)) == list(by_name)


def test_settings_of_the_encoder_override_the_models_own_loaded_or_not(
    here: Path, model: DualEncoder
) -> None:
    for start in (here / "model", model):
        loaded = adiabat.load(start, settings=EncoderSection(query_prompt="query: ", normalize=False))
        assert (loaded.query.settings.query_prompt, loaded.query.settings.normalize) == ("query: ", False)
    assert model.query.settings.query_prompt == ""


def test_trust_in_one_model_of_a_comparison_leaves_the_other_without(here: Path) -> None:
    assert (
        adiabat.load(here / "model", settings=EncoderSection(trust_remote_code="another/model")).width == 32
    )


def test_a_job_is_loaded_as_the_model_that_it_made(here: Path) -> None:
    assert adiabat.load(here / "job").name == str(here / "job")
    np.testing.assert_array_equal(
        adiabat.load(here / "job").encode(["a"], side="query", precision="fp32"),
        adiabat.load(here / "job" / "model").encode(["a"], side="query", precision="fp32"),
    )


def test_a_settings_file_beside_a_model_makes_it_no_job(here: Path, tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    (tmp_path / "model" / "config.toml").write_text("[tune]\n", encoding="utf-8")
    assert adiabat.load(tmp_path / "model").name == str(tmp_path / "model")


def test_a_faulty_corpus_is_told_before_the_model_is_loaded(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ingestion, model_names):
        monkeypatch.setattr(module, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    with pytest.raises(DataError, match="must exist"):
        adiabat.embed(here / "model", tmp_path / "none.jsonl", tmp_path / "new")
    with pytest.raises(DataError, match="must exist"):
        adiabat.tune(here / "model", here / "store", tmp_path / "none.jsonl", tmp_path / "new")
    with pytest.raises(DataError, match="must exist"):
        adiabat.evaluate(here / "model", here / "store", tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="measure.report must hold complete names"):
        adiabat.evaluate(*inputs(here), report=["x"])
    assert list(tmp_path.iterdir()) == []


def test_documents_that_fill_the_token_limit_are_counted(here: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    corpus = [{"doc_id": "short", "text": "a"}, {"doc_id": "long", "text": "word " * 30}]
    lines(tmp_path / "long.jsonl", corpus)
    adiabat.embed(
        here / "model", tmp_path / "long.jsonl", tmp_path / "store", progress=Watch(note=notes.append)
    )
    assert notes == ["1 of 2 distinct documents reach the limit of 64 tokens: longer ones are cut"]


def test_an_evaluation_of_a_job_holds_the_record_of_its_training(here: Path, tmp_path: Path) -> None:
    result = adiabat.evaluate(
        here / "job",
        here / "store",
        here / "pairs.jsonl",
        baseline=here / "model",
        out=tmp_path / "new",
        resamples=200,
    )
    assert result.training is not None
    assert result.training == read_result(here / "job" / "result.json").training
    assert read_result(tmp_path / "new" / "result.json") == result
    page = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert "embeddings" in page
    assert result.training.trained_on.split(":")[0] in page


def test_a_job_without_a_record_is_evaluated_and_one_with_a_damaged_record_is_refused(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(here / "job", tmp_path / "job")
    (tmp_path / "job" / "result.json").unlink()
    result = adiabat.evaluate(tmp_path / "job", here / "store", here / "pairs.jsonl", resamples=200)
    assert (result.model, result.training) == (str(tmp_path / "job"), None)
    # A damaged record is told before anything is measured.
    (tmp_path / "job" / "result.json").write_text("{", encoding="utf-8")
    monkeypatch.setattr(evaluation._Contest, "scores", lambda *_, **__: 1 / 0)
    with pytest.raises(DataError, match="must be undamaged"):
        adiabat.evaluate(tmp_path / "job", here / "store", here / "pairs.jsonl", resamples=200)


def test_a_measure_that_needs_documents_judged_not_relevant_is_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="measure.report must not .*, got 'Bpref'; take nDCG@10"):
        adiabat.evaluate(
            tmp_path / "nowhere", tmp_path / "nowhere", tmp_path / "nowhere", report=["nDCG@10", "Bpref"]
        )
    task = {"kind": "retrieval", "name": "one", "data": str(tmp_path / "nowhere"), "report": ["infAP"]}
    with pytest.raises(ConfigError, match="tasks.report must not .*, got 'infAP'; take nDCG@10"):
        adiabat.evaluate_suite(["bm25"], {"tasks": [task]}, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_result_says_by_which_settings_and_from_which_files(here: Path, tmp_path: Path) -> None:
    settings = {"query_prompt": "ask: ", "resamples": 321}
    pairs, store = here / "pairs.jsonl", Store.open(here / "store")
    held = tmp_path / "held.jsonl"
    lines(held, other_pairs("held", 12))
    adiabat.evaluate(
        here / "model",
        here / "store",
        pairs,
        retain=[(here / "store", held)],
        out=tmp_path / "new",
        **settings,
    )
    result = read_result(tmp_path / "new" / "result.json")
    assert (result.settings["encoder"], result.settings["measure"]["resamples"]) == (
        {"query_prompt": "ask: ", "allow_pickles": False},
        321,
    )
    read = {"data": str(pairs), "store": str(here / "store"), "store_sha256": store.manifest.sha256}
    assert result.inputs == {"target": read, "retain 1": {**read, "data": str(held)}}
    assert store.manifest.sha256 in (tmp_path / "new" / "report.html").read_text(encoding="utf-8")


def test_retention_sets_share_an_opened_store_and_nothing_is_written_without_out(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    plain = Store.open
    monkeypatch.setattr(Store, "open", lambda path: opened.append(str(path)) or plain(path))  # type: ignore[func-returns-value]
    files = [tmp_path.parent / f"{tmp_path.name}-{row}.jsonl" for row in range(2)]
    for number, file in enumerate(files):
        lines(file, other_pairs(f"held {number}", 12))
    retain = [(here / "store", file) for file in files]
    monkeypatch.chdir(tmp_path)
    result = adiabat.evaluate(*inputs(here), retain=retain, resamples=200)
    assert (result.training, list(tmp_path.iterdir())) == (None, [])
    assert [one.role for one in result.datasets] == ["target", "retain", "retain"]
    assert opened == [str(here / "store")]


def test_queries_without_judgements_are_a_list_a_file_or_a_setting(here: Path, tmp_path: Path) -> None:
    """The target's are given by name, and those of a retention set also in its table."""
    other, held, log = tmp_path / "other.jsonl", tmp_path / "held.jsonl", tmp_path / "log.txt"
    lines(other, other_pairs("asked"))
    lines(held, other_pairs("held"))
    texts = [f"unjudged {number}" for number in range(200)]
    lines(log, texts)
    compare = partial(
        adiabat.evaluate, here / "job", here / "store", other, baseline=here / "model", negatives="store"
    )
    store = here / "store"
    by_name = compare(retain=[(store, held)], unlabelled=[(other, texts), (held, log)], out=tmp_path / "new")
    assert [one.unlabelled for one in by_name.datasets] == [200, 200]
    assert by_name.inputs["retain 1"]["unlabelled"] == str(log)
    # Saved and read again, with both bounds.
    assert read_result(tmp_path / "new" / "result.json").datasets == by_name.datasets
    table = {"store": str(store), "data": str(held), "unlabelled": str(log)}
    in_settings = compare(settings={"retain": [table]})
    assert [one.unlabelled for one in in_settings.datasets] == [0, 200]
    assert in_settings.datasets[1] == by_name.datasets[1]
    alone = compare(retain=[(store, held)]).datasets[1].main_change()
    assert alone.loss_bound >= by_name.datasets[1].main_change().loss_bound  # type: ignore[operator]
    with pytest.raises(ConfigError, match="each once"):
        compare(unlabelled=[(other, log), (other, log)])
    with pytest.raises(TypeError, match="a list of pairs"):
        compare(unlabelled=log)


def test_without_a_comparison_a_set_that_repeats_another_is_measured_and_noted(
    here: Path, tmp_path: Path
) -> None:
    again = shutil.copy(here / "pairs.jsonl", tmp_path / "again.jsonl")
    result = adiabat.evaluate(*inputs(here), retain=[(here / "store", again)], resamples=200)
    target, repeated = result.datasets
    assert target.main_change().after == repeated.main_change().after
    told = f"pairs.jsonl has {target.queries} of the {target.queries}\N{NO-BREAK SPACE}rows of {again}"
    assert told in repeated.notes[0]
    assert not any("rows of" in note for note in target.notes)


def test_a_split_is_of_the_target_and_wins_over_the_settings(here: Path, tmp_path: Path) -> None:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    lines(folder / "queries.jsonl", [{"_id": f"q{number}", "text": f"text {number}"} for number in range(3)])
    for split, query in (("dev", "q0"), ("test", "q1"), ("train", "q2")):
        lines(folder / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore", f"{query}\td1\t1"])
    other = shutil.copytree(folder, tmp_path / "other" / "beir")
    (other / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t1\n", encoding="utf-8")
    asked: Callable[..., list[str]] = lambda **options: [  # noqa: E731
        one.name
        for one in adiabat.evaluate(
            here / "model", here / "store", folder, retain=[(here / "store", other)], **options
        ).datasets
    ]
    dev = {"data": {"split": "dev"}, "measure": {"resamples": 200}}
    assert asked(resamples=200) == ["beir/test", "beir/test"]
    assert asked(settings=dev) == ["beir/dev", "beir/test"]
    assert asked(settings=dev, split="train") == ["beir/train", "beir/test"]


def test_an_evaluation_that_fails_leaves_what_stood_there_before(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    adiabat.evaluate(*inputs(here), out=out, resamples=200)
    before = (out / "result.json").read_bytes()
    monkeypatch.setattr(evaluation, "changed_queries", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        adiabat.evaluate(*inputs(here), baseline=here / "model", out=out, resamples=200)
    assert (out / "result.json").read_bytes() == before
    monkeypatch.setattr(evaluation._Contest, "scores", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        adiabat.evaluate(*inputs(here), out=tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == [out]


def test_a_found_text_is_whole_however_long(here: Path, tmp_path: Path) -> None:
    long = "cat and dog, " * 100
    (tmp_path / "corpus.jsonl").write_text(
        json.dumps({"_id": "long", "text": long.strip()}) + "\n", encoding="utf-8"
    )
    adiabat.embed(here / "model", tmp_path / "corpus.jsonl", tmp_path / "store")
    assert [hit.text for hit in adiabat.search(tmp_path / "store", "cat", model=here / "model", k=1)] == [
        long.strip()
    ]


def test_blocks_and_a_padding_token_reach_the_loader_and_a_model_already_loaded_may_get_the_latter_alone(
    tmp_path: Path,
) -> None:
    save_tiny(tmp_path, "llama", layers=3)
    edit(tmp_path, "tokenizer_config.json", pad_token=None)
    model = adiabat.load(tmp_path)
    assert model.query.tokenizer.pad_token is None
    shorter = adiabat.load(tmp_path, settings=EncoderSection(blocks=2, pad_token="[SEP]", query_prompt="q: "))
    assert (shorter.query.backbone.config.num_hidden_layers, shorter.query.tokenizer.pad_token) == (
        2,
        "[SEP]",
    )
    assert shorter.query.settings.query_prompt == "q: "
    assert (
        adiabat.load(model, settings=EncoderSection(pad_token="[SEP]")).query.tokenizer.pad_token == "[SEP]"
    )
    assert model.query.tokenizer.pad_token is None
    with pytest.raises(ConfigError, match=r"encoder.blocks must be left out .*, got 1;"):
        adiabat.load(model, settings=EncoderSection(blocks=1))
    # Neither is a setting of the encoder itself.
    assert EncoderSection(blocks=1, pad_token="x", max_tokens=9).overrides() == {"max_tokens": 9}


def test_no_default_argument_of_a_function_stands_for_a_setting_of_a_file() -> None:
    settings = {key.rpartition(".")[2] for verb in KINDS for key in keys_of(kind_of(verb))}
    public = [getattr(adiabat, name) for name in adiabat.__all__]
    functions = [
        thing for thing in public if inspect.isfunction(thing) and thing.__module__.startswith("adiabat.api")
    ]
    defaults = {
        (function.__name__, name): argument.default
        for function in functions
        for name, argument in inspect.signature(function).parameters.items()
        if name in settings and argument.default is not inspect.Parameter.empty
    }
    assert {place: default for place, default in defaults.items() if default not in (None, ())} == {}
    assert defaults
