"""A suite from its settings to its result: every kind of task, what is kept, and what is never done twice."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from adiabat.config.shared import EncoderSection
from adiabat.core.errors import AdiabatError, ConfigError
from adiabat.core.progress import Watch
from adiabat.data.corpora import read_corpus
from adiabat.data.records import Document
from adiabat.evaluation import suite as running
from adiabat.evaluation.score_files import read_record, read_scores, score_files
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder
from adiabat.results.record import read_result
from adiabat.results.suite_result import SuiteResult
from adiabat.runs.output_dir import write_report
from adiabat.stats.samples import CORRELATION, SHARE
from adiabat.store.build import build_store
from adiabat.store.manifest import StoreDtype
from tests.evaluation.world import run, suite, tables, tiny


@pytest.fixture(scope="module")
def whole(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[SuiteResult, Path]:
    out = tmp_path_factory.mktemp("whole")
    return run(suite(tables(world)), out, "one", "two", "bm25"), out


def timeless(result: SuiteResult) -> SuiteResult:
    return replace(result, seconds=0.0, created="")


def test_every_task_is_measured_for_every_model_that_can_do_it(whole: tuple[SuiteResult, Path]) -> None:
    result, _ = whole
    kinds = {task.kind: task for task in result.tasks}
    assert len(kinds) == len(result.tasks) == 10
    for task in result.tasks:
        for model in result.models:
            able = model.name != "bm25" or task.kind in ("retrieval", "triplets")
            assert (result.main_score(task.name, model.name) is not None) == able
    ranked = {"retrieval": "nDCG@10", "triplets": "PND", "nli_grid": "PND", "question_grid": "P@1"}
    paired = {"sts": "Spearman", "words": "Spearman", "pair_classification": "average precision"}
    labelled = {"bitext": "accuracy", "classification": "accuracy", "clustering": "V-measure"}
    assert {kind: task.measure for kind, task in kinds.items()} == ranked | paired | labelled


def test_scores_of_every_unit_are_kept_and_give_the_values_again(whole: tuple[SuiteResult, Path]) -> None:
    result, out = whole
    kept = list(score_files(out / "scores"))
    assert len(kept) == 10 + 10 + 2
    asked = read_scores(out / "scores" / "one" / "asked.parquet")
    score = result.main_score("asked", "one")
    assert score is not None
    assert score.value == pytest.approx(asked.samples[0].values.mean())
    assert asked.texts[0] == "which river 0 and river"


def test_measures_of_every_kind_know_their_bounds_and_only_grids_have_pseudo_values(
    whole: tuple[SuiteResult, Path],
) -> None:
    for path in score_files(whole[1] / "scores"):
        scores = read_scores(path)
        bounds = CORRELATION if scores.kind in ("sts", "words") else SHARE
        assert {sample.bounds for sample in scores.samples} == {bounds}, scores.kind
        assert {sample.pseudo_values for sample in scores.samples} == {scores.kind == "nli_grid"}


def test_the_result_is_written_and_read_again(whole: tuple[SuiteResult, Path], tmp_path: Path) -> None:
    write_report(whole[0], tmp_path)
    assert read_result(tmp_path / "result.json", SuiteResult).to_json() == whole[0].to_json()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"result.json", "report.html", "table.csv", "table.md", "table.tex"}


def test_the_same_command_encodes_nothing_again(
    world: Path, whole: tuple[SuiteResult, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, out = whole
    with encoded(monkeypatch) as texts:
        notes: list[str] = []
        again = run(suite(tables(world)), out, "one", "two", "bm25", watch=Watch(note=notes.append))
    assert not texts
    assert timeless(again).to_json() == timeless(result).to_json()
    assert notes == [f"22 of 22 scores were there already, in {out / 'scores'}"]


@contextmanager
def encoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """Which texts go through an encoder, with their side."""
    seen: list[tuple[str, str]] = []
    original = Encoder.encode

    def counting(encoder: Encoder, texts: Sequence[str], **named: Any) -> Any:
        seen.extend((named["side"], text) for text in texts)
        return original(encoder, texts, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "encode", counting)
        yield seen


def test_a_model_more_costs_only_itself(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = suite(tables(world)[:1])
    run(settings, tmp_path, "one")
    with encoded(monkeypatch) as texts:
        result = run(settings, tmp_path, "one", "two")
    assert len(texts) == 25 + 12
    assert [model.name for model in result.models] == ["one", "two"]


def test_a_tuned_query_tower_encodes_no_document(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loader(name: str, section: EncoderSection) -> DualEncoder:
        base = tiny("base", section)
        return base if name == "base" else DualEncoder(tiny("other", section).query, base.document, name=name)

    settings = suite(tables(world)[:1])
    run(settings, tmp_path, "base", loader=loader)
    with encoded(monkeypatch) as texts:
        result = run(settings, tmp_path, "base", "tuned", loader=loader)
    assert {side for side, _ in texts} == {"query"}
    assert result.pairings


def stored(documents: Iterable[Document], folder: Path, **options: Any) -> str:
    """Where model "one" stores these documents."""
    kept = list(documents)
    about = {"source": "c", "encoder_name": "one", **options}
    build_store(tiny("one", EncoderSection()), lambda: iter(kept), folder, **about)
    return str(folder)


def test_a_store_of_the_user_is_read_where_it_fits(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = world / "corpus.jsonl"
    table = {**tables(world)[0], "stores": [stored(read_corpus(corpus), tmp_path / "store")]}
    with encoded(monkeypatch) as texts:
        own = run(suite([table]), tmp_path / "own", "one", "two")
    # "two" has another document tower, so its documents are embedded.
    assert [side for side, _ in texts].count("document") == 25
    plain = run(suite(tables(world)[:1]), tmp_path / "plain", "one", "two")
    assert [score.value for score in own.scores] == [score.value for score in plain.scores]


@pytest.mark.parametrize("other", ["fewer documents", "another text"])
def test_a_store_of_other_documents_is_passed_over(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    documents = list(read_corpus(world / "corpus.jsonl"))
    if other == "another text":
        documents[7] = replace(documents[7], text=f"{documents[7].text}!")
    else:
        documents.pop()
    table = {**tables(world)[0], "stores": [stored(documents, tmp_path / "store")]}
    with encoded(monkeypatch) as texts:
        run(suite([table]), tmp_path / "out", "one")
    assert [side for side, _ in texts].count("document") == 25


def test_another_prompt_is_another_model(world: Path, tmp_path: Path) -> None:
    asking = {"name": "asking", "model": "m", "encoder": {"query_prompt": "query: "}}
    models = [{"name": "bare", "model": "m"}, asking]
    result = run(suite(tables(world)[:1], models=models), tmp_path)
    assert [model.query_prompt for model in result.models] == ["", "query: "]
    values = [score.value for score in result.scores if score.measure == "nDCG@10"]
    assert values[0] != values[1]
    assert len(list((tmp_path / "stores").rglob("manifest.json"))) == 1


def test_runs_of_a_model_are_kept_apart_and_averaged(world: Path, tmp_path: Path) -> None:
    models = [{"name": "base", "model": "base"}, {"name": "seeds", "model": "s0", "runs": ["s1", "s2"]}]
    result = run(suite(tables(world)[:1], models=models, suite={"baseline": "base"}), tmp_path)
    files = [tmp_path / "scores" / "seeds" / f"run-{number}" / "asked.parquet" for number in (1, 2, 3)]
    values = [read_scores(path).samples[0].values for path in files]
    score = result.main_score("asked", "seeds")
    assert score is not None
    assert score.value == pytest.approx(np.mean(values))
    assert result.models[1].runs == ["s0", "s1", "s2"]
    assert result.pairings[0].against == "base"


def test_a_suite_that_was_cut_short_goes_on(
    world: Path, whole: tuple[SuiteResult, Path], tmp_path: Path
) -> None:
    class StopError(AdiabatError):
        pass

    def stopping(label: str, done: int, total: int) -> None:
        if label == "two: same":
            raise StopError("stop")

    with pytest.raises(StopError):
        run(suite(tables(world)), tmp_path, "one", "two", "bm25", watch=Watch(progress=stopping))
    assert len(list(score_files(tmp_path))) == 10 + 4
    result = run(suite(tables(world)), tmp_path, "one", "two", "bm25")
    assert timeless(result).to_json() == timeless(whole[0]).to_json()


def test_data_that_changed_are_measured_anew(world: Path, tmp_path: Path) -> None:
    copy = tmp_path / "asked.jsonl"
    copy.write_text((world / "asked.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    table = {**tables(world)[0], "data": str(copy)}
    run(suite([table]), tmp_path / "out", "one")
    copy.write_text("".join(copy.read_text(encoding="utf-8").splitlines(keepends=True)[:5]), encoding="utf-8")
    assert run(suite([table]), tmp_path / "out", "one").tasks[0].units == 5


def test_a_damaged_file_of_scores_is_named_and_measured_anew(world: Path, tmp_path: Path) -> None:
    whole = run(suite(tables(world)[:1]), tmp_path, "one")
    path = tmp_path / "scores" / "one" / "asked.parquet"
    path.write_bytes(path.read_bytes()[:100])
    told: list[str] = []
    again = run(suite(tables(world)[:1]), tmp_path, "one", watch=Watch(note=told.append))
    assert "asked.parquet must be undamaged" in told[0]
    assert told[0].endswith("scored again")
    assert timeless(again) == timeless(whole)


def test_tasks_and_models_that_nothing_can_be_measured_with_are_refused(world: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one model must be able to do a task, got bm25"):
        run(suite(tables(world)[2:4]), tmp_path, "bm25")


def test_scores_of_other_versions_are_told(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(running, "versions", lambda device: {"torch": "1.0", "device": device})
        run(suite(tables(world)[:2]), tmp_path, "one")
    result = run(suite(tables(world)[:3]), tmp_path, "one")
    assert result.notes == ["2 of 3 scores were kept from a call with torch 1.0"]


def test_runs_that_are_no_longer_listed_are_told(world: Path, tmp_path: Path) -> None:
    def models(*runs: str) -> dict[str, Any]:
        return {"models": [{"name": "m", "model": "one", "runs": list(runs)}]}

    run(suite(tables(world)[:1], **models("two", "three")), tmp_path)
    told: list[str] = []
    run(suite(tables(world)[:1], **models("two")), tmp_path, watch=Watch(note=told.append))
    unlisted = f"{tmp_path / 'scores' / 'm' / 'run-3'} holds scores of a run that is not listed now"
    assert any(unlisted in note for note in told)


def test_a_store_of_other_vectors_gives_scores_of_its_own(world: Path, tmp_path: Path) -> None:
    """Rounded vectors of the same model: what was kept of the exact ones is not theirs."""
    keys = []
    for dtype in get_args(StoreDtype):
        path = stored(read_corpus(world / "corpus.jsonl"), tmp_path / dtype, dtype=dtype)
        table = {**tables(world)[0], "stores": [path]}
        run(suite([table]), tmp_path / "out", "one")
        keys.append(read_record(tmp_path / "out" / "scores" / "one" / "asked.parquet")["key"])
    assert keys[0] != keys[1]


def test_a_baseline_that_is_no_model_is_refused_before_data_are_read(tmp_path: Path) -> None:
    settings = suite([{"kind": "sts", "data": "missing.jsonl"}], suite={"baseline": "nobody"})
    told = r"suite\.baseline must be the name of a model, got nobody; the models are one"
    with pytest.raises(ConfigError, match=told):
        run(settings, tmp_path, "one")
