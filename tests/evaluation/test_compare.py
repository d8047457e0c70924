"""Two models compared from what was kept of them, and runs in the format of TREC."""

from collections.abc import Callable
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import pytrec_eval

from adiabat.config.reader import checked
from adiabat.config.tasks import CompareSettings
from adiabat.core.errors import ConfigError, DataError
from adiabat.data.judgements import read_qrels, read_run
from adiabat.evaluation.compare import compare_runs, scores_of_run
from adiabat.evaluation.score_files import write_scores
from adiabat.report import pages
from adiabat.results.suite_result import SuiteResult
from adiabat.stats.paired import paired_changes
from adiabat.stats.samples import TaskScores
from tests.evaluation.scored import ranked

VALUES = np.random.default_rng(2).random((2, 30)).tolist()


def kept(folder: Path, *tasks: TaskScores, **more: object) -> Path:
    for one in tasks:
        about = {"model": folder.name, "source": "models/m", **more}
        write_scores(one, folder / f"{one.task}.parquet", key="", about=about)
    return folder


def compared(first: Path, second: Path, *, qrels: Path | None = None, **measure: object) -> SuiteResult:
    settings = checked(CompareSettings, {"measure": {"resamples": 300, **measure}})
    return compare_runs(first, second, qrels=qrels, settings=settings, command="adiabat compare")


def test_what_was_kept_gives_what_the_models_gave(tmp_path: Path) -> None:
    a, b = kept(tmp_path / "a", ranked(VALUES[0])), kept(tmp_path / "b", ranked(VALUES[1]))
    result = compared(a, b)
    alone = paired_changes(ranked(VALUES[1]).samples, ranked(VALUES[0]).samples, seed=0, resamples=300)[0]
    assert (result.baseline, [model.name for model in result.models]) == ("a", ["a", "b"])
    assert [(one.model, one.against, one.change) for one in result.pairings] == [("b", "a", alone)]


def test_folders_of_runs_are_seeds_of_one_model(tmp_path: Path) -> None:
    a = kept(tmp_path / "a", ranked(VALUES[0]))
    for number, values in enumerate(VALUES, start=1):
        kept(tmp_path / "b" / f"run-{number}", ranked(values), model="b", run=number)
    result = compared(a, tmp_path / "b")
    assert len(result.models[1].runs) == 2
    assert result.pairings[0].change.after == pytest.approx(np.mean(VALUES))
    assert result.pairings[0].change.test == "t test"


@pytest.mark.parametrize("content", [None, b"damaged"], ids=["lost", "damaged"])
def test_the_rest_is_compared_where_a_file_of_a_run_is_lost_or_damaged_and_that_is_said(
    tmp_path: Path, content: bytes | None
) -> None:
    before = kept(tmp_path / "before", ranked([0.1, 0.2, 0.3]), ranked([0.5, 0.6, 0.7], task="other"))
    for number, gain in ((1, 0.1), (2, 0.3)):
        after = ranked([0.1 + gain, 0.2 + gain, 0.3 + gain]), ranked([0.5 + gain] * 3, task="other")
        kept(tmp_path / "after" / f"run {number}", *after, model="after", run=number)
    file = tmp_path / "after" / "run 2" / "asked.parquet"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    result = compared(before, tmp_path / "after")
    assert [task.name for task in result.tasks] == ["asked", "other"]
    value = next(score.value for score in result.scores if (score.model, score.task) == ("after", "asked"))
    assert value == pytest.approx(0.3)
    assert "asked: after has scores of only 1 of its 2 runs" in result.notes
    damaged = any(f"left out: {file} must be undamaged" in note for note in result.notes)
    assert damaged == (content is not None)
    assert "1 of its 2 runs" in pages.summary(result)


def one_run_beside_several(folder: Path) -> None:
    kept(folder, ranked(VALUES[0]))
    kept(folder / "run-1", ranked(VALUES[1]), model="a", run=1)


def a_copied_file(folder: Path) -> None:
    kept(folder, ranked(VALUES[0]))
    (folder / "other.parquet").write_bytes((folder / "asked.parquet").read_bytes())


def two_models(folder: Path) -> None:
    for name in ("run-1", "run-2"):
        kept(folder / name, ranked(VALUES[0]))


def two_states(folder: Path) -> None:
    kept(folder, ranked(VALUES[0]), state="1")
    kept(folder, ranked(VALUES[0], task="more"), state="2")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (one_run_beside_several, "a must hold scores of one run or of several, got both"),
        (a_copied_file, r"other\.parquet must hold the scores of a task once, got asked twice"),
        (two_models, "a must hold scores of one model, got 2 folders: .*a/run-1; .*a/run-2; name one"),
        (two_states, r"more\.parquet must hold scores of the same state of the model"),
        (
            lambda folder: kept(folder, ranked([0.1], task="x")),
            "at least one task in common, got x in .*a and asked in .*b",
        ),
        (Path.mkdir, "a must hold scores, got no score files"),
        (lambda folder: None, "a must be a folder with scores, .* got no such file"),
    ],
)
def test_scores_that_cannot_be_compared_are_refused(
    tmp_path: Path, write: Callable[[Path], object], message: str
) -> None:
    write(tmp_path / "a")
    with pytest.raises(DataError, match=message):
        compared(tmp_path / "a", kept(tmp_path / "b", ranked(VALUES[1])))


def test_tasks_of_one_alone_are_named(tmp_path: Path) -> None:
    a = kept(tmp_path / "a", ranked(VALUES[0]), ranked([0.1], task="more"))
    b = kept(tmp_path / "b", ranked(VALUES[1]))
    result = compared(a, b)
    assert [task.name for task in result.tasks] == ["asked"]
    assert result.notes == [f"only in {a} and not compared: more"]


def test_missing_queries_are_counted_or_left_out_when_that_is_asked_for(tmp_path: Path) -> None:
    a = kept(tmp_path / "a", ranked([0.1, 0.2, 0.3, 0.9], units=["1", "2", "3", "4"]))
    b = kept(tmp_path / "b", ranked([0.6, 0.5, 0.4, 0.1], units=["3", "2", "5", "1"]))
    with pytest.raises(DataError, match="b lacks 1 and has 1 other, of 4"):
        compared(a, b)
    result = compared(a, b, units="common")
    change = result.pairings[0].change
    assert (result.tasks[0].units, change.before, change.after) == (3, pytest.approx(0.2), pytest.approx(0.4))
    assert result.tasks[0].notes == ["1 that the other lacks were left out"]


def test_models_of_one_name_go_by_their_paths(tmp_path: Path) -> None:
    a, b = (
        kept(tmp_path / name, ranked(values), model="m") for name, values in zip("ab", VALUES, strict=True)
    )
    assert [model.name for model in compared(a, b).models] == [str(a), str(b)]


@pytest.fixture
def judged(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Two runs without ties, and judgements in grades."""
    generator = np.random.default_rng(7)
    pairs = [(f"q{query}", f"d{document}") for query in range(12) for document in range(20)]
    files = tmp_path / "one.run", tmp_path / "two.run", tmp_path / "qrels.txt"
    grades = [f"{query} 0 {document} {generator.integers(0, 3)}\n" for query, document in pairs]
    files[2].write_text("".join(grades), encoding="utf-8")
    for path in files[:2]:
        rows = [f"{query} Q0 {document} 0 {generator.random()} run\n" for query, document in pairs]
        path.write_text("".join(rows), encoding="utf-8")
    return files


def test_runs_without_ties_have_the_values_of_ir_measures(judged: tuple[Path, Path, Path]) -> None:
    first, _, qrels = judged
    names = ["nDCG@10", "RR", "AP", "P@5"]
    scores = scores_of_run(read_run(first), read_qrels(qrels), names, task="t")
    measures = [ir_measures.parse_measure(name) for name in names]
    run, truth = ir_measures.read_trec_run(str(first)), list(ir_measures.read_trec_qrels(str(qrels)))
    metrics = ir_measures.iter_calc(measures, truth, run)
    expected = {(str(metric.measure), metric.query_id): metric.value for metric in metrics}
    for sample in scores.samples:
        theirs = [expected[sample.measure, query] for query in scores.units]
        np.testing.assert_allclose(sample.values, theirs, rtol=1e-9)


def test_queries_without_a_result_count_as_zero_and_what_is_left_out_is_counted() -> None:
    run = {"q1": {"a": 1.0}, "stranger": {"a": 1.0}}
    qrels = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 0}}
    scores = scores_of_run(run, qrels, ["RR"], task="t")
    assert (list(scores.units), scores.samples[0].values.tolist()) == (["q1", "q2"], [1.0, 0.0])
    assert [note.split()[0] for note in scores.notes] == ["1", "1", "1"]


def test_a_run_of_other_queries_is_refused() -> None:
    with pytest.raises(DataError, match="x.run must hold queries that are judged, got none of the 1 of t"):
        scores_of_run({"x": {"a": 1.0}}, {"q": {"a": 1}}, ["RR"], task="t", name="x.run")


def test_a_run_is_compared_with_kept_scores_of_the_task_that_it_is_named_for(
    tmp_path: Path, judged: tuple[Path, Path, Path]
) -> None:
    run, _, qrels = judged
    own = compared(run, judged[1], qrels=qrels)
    units = scores_of_run(read_run(run), read_qrels(qrels), ["nDCG@10"], task="t").units
    kept(tmp_path / "a", ranked([0.5] * len(units), task="cacm/test", units=units))
    with pytest.raises(DataError, match=r"named by measure\.task"):
        compared(tmp_path / "a", run, qrels=qrels)
    found = compared(tmp_path / "a", run, qrels=qrels, task="cacm/test", report=["nDCG@10"])
    assert [task.name for task in found.tasks] == ["cacm/test"]
    assert found.pairings[0].change.after == own.pairings[0].change.before


def test_settings_without_effect_are_refused(tmp_path: Path, judged: tuple[Path, Path, Path]) -> None:
    first, second, qrels = judged
    a, b = kept(tmp_path / "a", ranked(VALUES[0])), kept(tmp_path / "b", ranked(VALUES[1]))
    for pair, options, told in (
        ((first, second), {}, "qrels must name the judgements"),
        ((a, b), {"qrels": qrels}, "qrels must be left out"),
        ((a, b), {"ties": "trec_eval"}, r"measure\.ties has no effect on saved scores"),
        ((a, tmp_path / "b" / ".." / "a"), {}, "the two must differ, got .*a twice"),
    ):
        with pytest.raises(ConfigError, match=told):
            compared(*pair, **options)


TIED = {"q1": {"d1": 1.0, "d2": 1.0, "d10": 1.0, "e": 0.5}}
TIED |= {"q2": {"d1": 2.0, "d2": 1.0}, "q3": {"d1": 1.0, "d2": 1.0}}
GRADES = {"q1": {"d2": 1}, "q2": {"d1": 1}, "q3": {"d1": 1}}


def test_ties_are_counted_and_the_order_of_relevant_documents_is_told() -> None:
    """Of q1's three equals d2 is the last by our rule, and the first of trec_eval (d2, d10, d1); of q3's two
    d1 is last by both.
    """
    ours = scores_of_run(TIED, GRADES, ("RR",), task="t")
    assert ours.samples[0].values.tolist() == pytest.approx([1 / 3, 1, 1 / 2])
    told = "5 documents, in 2 of the queries, have the same score as another document of the query: "
    last = "relevant documents are ranked last among equals; measure.ties = trec_eval"
    assert ours.notes[0].startswith(f"{told}{last}")
    theirs = scores_of_run(TIED, GRADES, ("RR",), task="t", ties="trec_eval")
    assert theirs.samples[0].values.tolist() == pytest.approx([1, 1, 1 / 2])
    assert theirs.notes == (f"{told}they are ranked in trec_eval's order, by descending document id",)
    assert scores_of_run({"q2": TIED["q2"]}, {"q2": GRADES["q2"]}, ("RR",), task="t").notes == ()


def test_the_order_of_trec_eval_gives_the_values_of_pytrec_eval() -> None:
    """Scores with few values, some equal in 32 bits alone, and ids of several scripts and lengths."""
    rng = np.random.default_rng(0)
    ids = [f"{start}{number}" for start in ("d", "D", "é", "文", "😀", "") for number in range(9)]
    run = {
        f"q{query}": {one: rng.integers(0, 4) + rng.choice([0.0, 1e-12]) for one in rng.permutation(ids)}
        for query in range(20)
    }
    qrels = {}
    for query in run:
        qrels[query] = {one: int(rng.integers(0, 3)) for one in rng.choice(ids, 12, replace=False)}
    found = scores_of_run(run, qrels, ("nDCG@10", "AP", "RR", "P@5"), task="t", ties="trec_eval")
    peer = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "map", "recip_rank", "P.5"}).evaluate(run)
    for sample, name in zip(found.samples, ("ndcg_cut_10", "map", "recip_rank", "P_5"), strict=True):
        np.testing.assert_allclose(sample.values, [peer[query][name] for query in found.units], atol=1e-12)
    ours = scores_of_run(run, qrels, ("nDCG@10",), task="t")
    assert (ours.samples[0].values < found.samples[0].values).any()
