"""A script that runs twice: what `exist_ok` returns, takes up and refuses."""

import shutil
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import adiabat
from adiabat.api.repeated import Asked, content_of
from adiabat.config.tasks import SuiteSettings
from adiabat.core.errors import ConfigError, JobError
from adiabat.datasets.writer import DatasetSummary
from adiabat.training.loop import Loop
from tests.commands import Run, lines
from tests.commands import run as run
from tests.datasets.test_squad import paragraph, qa, squad
from tests.refusals.world import write_mistakes
from tests.tiny import save_tiny_reranker

FAST: Mapping[str, Any] = {
    "recipe": "paper",
    "max_epochs": 1,
    "batches_per_epoch": 2,
    "validation_fraction": 0.4,
}
TASK = {"kind": "retrieval", "data": "pairs.jsonl", "corpus": "corpus.jsonl", "stores": ["store"]}
SWEEP = {
    "job": {"model": "model", "store": "store", "data": "pairs.jsonl"},
    "tune": {"max_epochs": 1, "batches_per_epoch": 2},
    "grid": {"tune": {"learning_rate": [1e-6, 1e-5]}},
    "data": {"validation_fraction": 0.4},
    "tasks": [TASK],
    "probes": False,
}
SCALING = {
    "models": [{"model": "model", "blocks": [1], "pretraining_rate": 0.01}],
    "job": {"data": "texts.jsonl"},
    "data": {"validation_fraction": 0.4},
    "train": {"batch_size": 4},
}
IDS = [*map(str, range(20))]
RATES = {"low": 1e-7, "high": 1e-6, "count": 2, "steps": 2, "checks": 1}
STUDENT = {"validation_fraction": 0.2, "batch_size": 4, "steps": 2}

Verb = Callable[..., Any]
FEW: Mapping[str, Any] = {"resamples": 100}
DATA = ("model", "store", "pairs.jsonl")
VERBS: Mapping[str, Verb] = {
    "embed": lambda out, **more: adiabat.embed("model", "corpus.jsonl", out, **more),
    "import_vectors": lambda out, **more: adiabat.import_vectors("vectors.npy", out, ids=IDS, **more),
    "tune": lambda out, **more: adiabat.tune(*DATA, out, **{**FAST, **more}),
    "train": lambda out, **more: adiabat.train("model", "texts.jsonl", out, batch_size=4, steps=2, **more),
    "evaluate": lambda out, **more: adiabat.evaluate(*DATA, out=out, **FEW, **more),
    "evaluate_suite": lambda out, **more: adiabat.evaluate_suite(["model"], "suite.toml", out, **FEW, **more),
    "space": lambda out, **more: adiabat.space(*DATA, out=out, **FEW, **more),
    "advise": lambda out, **more: adiabat.advise(*DATA, out=out, **more),
    "distill_static": lambda out, **more: adiabat.distill_static("model", out, dims=16, **more),
    "distill_fit": lambda out, **more: adiabat.distill_fit(
        "model", "model", out, texts="corpus.jsonl", **STUDENT, **more
    ),
    "distill_multilingual": lambda out, **more: adiabat.distill_multilingual(
        "model", "model", out, parallel="parallel.jsonl", **STUDENT, **more
    ),
    "distill_ablate": lambda out, **more: adiabat.distill_ablate(
        "model", out, suite="suite.toml", dims=16, **more
    ),
    "compare": lambda out, **more: adiabat.compare(
        "measured/scores/model", "measured/scores/bm25", out=out, **FEW, **more
    ),
    "make": lambda out, **more: adiabat.make(
        "squad", "train-v1.1.json", out, repeats=more.pop("seed", "drop"), **more
    ),
    "mine": lambda out, **more: adiabat.mine(
        [{"query": "document 3", "pos": ["d3"]}], "corpus.jsonl", f"{out}.jsonl", **more
    ),
    "label": lambda out, **more: adiabat.label(
        "pairs.jsonl", "store", f"{out}.jsonl", reranker="reranker", depth=2 + more.pop("seed", 0), **more
    ),
    "plan": lambda out, **more: adiabat.plan(budget=10 ** (17 + more.pop("seed", 0)), out=out, **more),
    "scaling": lambda out, **more: adiabat.scaling(
        SCALING, out=out, budgets=[1e7], least_steps=1, resamples=10, **more
    ),
    "sweep": lambda out, **more: adiabat.sweep(SWEEP, out=out, **FEW, **more),
    "safe_rate": lambda out, **more: adiabat.safe_rate(
        *DATA, out, rate_search=RATES, guard={"depth": 10}, validation_fraction=0.4, **more
    ),
}
"""Each verb that writes `out`."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    write_mistakes(here)
    save_tiny_reranker(here / "reranker")
    squad(here / "train-v1.1.json", paragraph(qa("q1", "When did it burn?", "1850")))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        adiabat.evaluate_suite(["model", "bm25"], "suite.toml", "measured", resamples=100)
    lines(
        here / "texts.jsonl",
        [{"query": f"question {number}", "positive": f"answer {number}"} for number in range(20)],
    )
    return here


@pytest.fixture(autouse=True)
def _here(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)


def plain(result: Any) -> Any:
    """What a result says, whether it was just made or read again."""
    if isinstance(result, DatasetSummary):
        return result
    return (
        result.to_json() if hasattr(result, "to_json") else getattr(result, "report", None) or result.manifest
    )


@pytest.mark.parametrize("name", VERBS)
def test_the_same_call_is_returned_without_work_and_another_is_refused_with_what_differs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, out = VERBS[name], f"of_{name}"
    made = call(out, exist_ok=True)
    with monkeypatch.context() as patched:
        patched.setattr(
            "adiabat.models.encoder.Encoder.forward", lambda *_, **__: pytest.fail("there was work")
        )
        patched.setattr(
            "adiabat.models.model_names.load_directory", lambda *_, **__: pytest.fail("a model was loaded")
        )
        assert plain(call(out, exist_ok=True)) == plain(made)
    differs = "(seed|depth) was [02], is [57]|budget was 1e.17, is 1e.22|repeats was 'drop', is 'negative'"
    with pytest.raises(JobError, match=f"holds the result of another call: .*({differs})") as refused:
        call(out, exist_ok=True, seed="negative" if name == "make" else 5)
    assert ("extend it with resume=True" in str(refused.value)) == (
        "resume" in signature(getattr(adiabat, name)).parameters
    )
    with pytest.raises(JobError, match="out must be new or empty with exist_ok=False"):
        call(out, exist_ok=False)


def test_a_pair_is_loaded_again_and_not_saved(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def paired(**more: Any) -> Any:
        return adiabat.distill_pair("model", more.pop("document", "model"), "of_pair", **more)

    made = paired(exist_ok=True)
    with monkeypatch.context() as patched:
        patched.setattr(
            "adiabat.distillation.static_model.save_model", lambda *_, **__: pytest.fail("it was saved")
        )
        assert paired(exist_ok=True).fingerprint("query") == made.fingerprint("query")
    with pytest.raises(JobError, match="another call: document was model, is small"):
        paired(exist_ok=True, document="small")
    for exist_ok in (False, None):
        with pytest.raises(
            JobError, match="out must be (new or empty with exist_ok=False|a new or empty directory)"
        ):
            paired(exist_ok=exist_ok)


def test_an_input_with_other_content_is_another_call_and_the_same_elsewhere_is_not(
    world: Path, tmp_path: Path
) -> None:
    lines(tmp_path / "queries.jsonl", [{"query": "a", "pos": ["d1"]}, {"query": "b", "pos": ["d2"]}])

    def evaluated(data: Path) -> Any:
        return adiabat.evaluate("model", "store", data, out=tmp_path / "out", resamples=100, exist_ok=True)

    first = evaluated(tmp_path / "queries.jsonl")
    shutil.copy(tmp_path / "queries.jsonl", tmp_path / "moved.jsonl")
    assert plain(evaluated(tmp_path / "moved.jsonl")) == plain(first)
    lines(tmp_path / "queries.jsonl", [{"query": "a", "pos": ["d3"]}])
    with pytest.raises(JobError, match=r"another call: the content of sets .*queries\.jsonl.* has changed"):
        evaluated(tmp_path / "queries.jsonl")


def test_files_that_lists_of_tables_name_count_by_their_content(tmp_path: Path) -> None:
    lines(tmp_path / "queries.jsonl", [{"query": "a", "pos": ["d1"]}])
    suite = {"tasks": [{**TASK, "data": str(tmp_path / "queries.jsonl"), "stores": []}]}

    def measured() -> Any:
        return adiabat.evaluate_suite(["bm25"], suite, tmp_path / "out", resamples=100, exist_ok=True)

    first = measured()
    assert plain(measured()) == plain(first)
    lines(tmp_path / "queries.jsonl", [{"query": "a", "pos": ["d2"]}])
    with pytest.raises(
        JobError, match=r"another call: the content of tasks\.1\.data .*queries\.jsonl.* has changed"
    ):
        measured()


def test_files_that_a_suite_names_count_where_the_suite_is_an_input(tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl"

    def described(document: str) -> dict[str, Any]:
        lines(queries, [{"query": "a", "pos": [document]}])
        suite = SuiteSettings.model_validate({"tasks": [{**TASK, "data": str(queries)}]})
        arguments: dict[str, Any] = Asked.of(
            "distill_ablate", tmp_path / "out", None, settings=None, suite=suite
        )._described["arguments"]
        return arguments

    before, now = described("d1"), described("d2")
    assert [name for name in before if before[name] != now[name]] == ["suite.tasks.1.data"]


def test_an_unfinished_job_is_taken_up(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tuned(**more: Any) -> Any:
        return adiabat.tune(
            "model", "store", "pairs.jsonl", tmp_path / "job", exist_ok=True, **{**FAST, **more}
        )

    def stop(self: Loop, *_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Loop, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            tuned()
    with pytest.raises(JobError, match="run.seed was 0, is 1"):
        tuned(seed=1)
    assert tuned().training.steps == 2


def test_results_whose_call_is_unknown_or_that_changed_since_are_not_returned(
    world: Path, tmp_path: Path
) -> None:
    def evaluated(**more: Any) -> Any:
        return adiabat.evaluate("model", "store", "pairs.jsonl", out=tmp_path / "out", resamples=100, **more)

    evaluated()
    assert evaluated(exist_ok=True).folder == tmp_path / "out"
    evaluated(seed=3)
    with pytest.raises(JobError, match="run.seed was 3, is 0"):
        evaluated(exist_ok=True)
    (tmp_path / "out" / ".call.json").unlink()
    with pytest.raises(JobError, match="holds a result whose call is not recorded"):
        evaluated(exist_ok=True)


def test_the_command_line_has_the_same_rule(run: Run, world: Path) -> None:
    command = "evaluate model store pairs.jsonl --out typed --set measure.resamples=100 --exist-ok"
    first = run(command)
    again = run(command)
    assert (first.code, again.code, again.out) == (0, 0, first.out)
    refused = run(command, "--seed", "4")
    assert refused.code == 2
    assert (
        "--out typed holds the result of another call: run.seed was 0, is 4; repeat that call, or"
        in refused.err
    )
    assert run("tune model store pairs.jsonl --dry-run --exist-ok").code == 2


def test_other_ids_are_told_without_their_digest(tmp_path: Path) -> None:
    adiabat.import_vectors("vectors.npy", tmp_path / "out", ids=IDS)
    with pytest.raises(JobError, match=r"the content of ids \(20 ids\) has changed; repeat that call"):
        adiabat.import_vectors("vectors.npy", tmp_path / "out", ids=IDS[::-1], exist_ok=True)


def test_exist_ok_needs_a_directory(world: Path) -> None:
    with pytest.raises(ConfigError, match="exist_ok is about the directory in out, got none"):
        adiabat.evaluate("model", "store", "pairs.jsonl", exist_ok=True)


def test_a_loaded_model_counts_by_its_weights(world: Path) -> None:
    model = adiabat.load("model")
    asked = [
        Asked.of("tune", "o", None, settings=None, model=entry) for entry in (model, adiabat.load("model"))
    ]
    assert asked[0]._described["arguments"] == asked[1]._described["arguments"]
    assert asked[0]._described["arguments"]["model"]["content"] != content_of(world / "model")
