"""Power as evaluate, inspect and tune print it: the same figures as `power_of` gives for the scores of the
queries.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.core.errors import ConfigError
from adiabat.data.examples import read_examples
from adiabat.evaluation.score_files import read_scores, score_files
from adiabat.evaluation.set_power import MOST_VALIDATION, validation_power
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result
from adiabat.stats.power import SPREAD, power_of
from adiabat.store.addressing import address
from adiabat.store.vector_store import Store
from tests.commands import Run, evaluate, own_world, setting, tune
from tests.commands import here as here
from tests.commands import run as run

world = own_world


def tuned() -> None:
    """A job whose query tower differs, in the working directory."""
    rates = {"learning_rate": 1e-2, "max_epochs": 1, "batches_per_epoch": 2, "keep": "last"}
    adiabat.tune("model", "store", "pairs.jsonl", "job", validation_fraction=0.4, **rates)


STORE = setting("measure.negatives=store", "measure.resamples=100")


def test_evaluate_predicts_power_from_one_model(here: Path, run: Run) -> None:
    said = run(*evaluate("pairs.jsonl"), "--power", *STORE)
    assert said.code == 0
    (power,) = read_result(here / "new" / "result.json", Result).power
    (file,) = score_files(here / "new" / "scores")
    expected = power_of(read_scores(file).samples[0])
    assert (power.name, power.measure, power.units, power.spread) == ("pairs", "nDCG@10", 20, SPREAD)
    assert (power.detectable, power.excludable) == (
        pytest.approx(expected.detectable),
        pytest.approx(expected.excludable),
    )
    told = " ".join(said.err.split())
    assert "Power of pairs: 20 queries (nDCG@10 " in told
    assert "No tuned model was measured" in told
    assert 'id="power"' in (here / "new" / "report.html").read_text(encoding="utf-8")


def test_evaluate_observes_power_against_a_baseline(here: Path) -> None:
    tuned()
    evaluation = adiabat.evaluate(
        "job", "store", "pairs.jsonl", baseline="model", power=True, negatives="store", resamples=2000
    )
    (power,) = evaluation.power
    assert power.spread is None
    assert power.detectable == pytest.approx(evaluation.datasets[0].main_change().detectable, rel=0.1)
    assert "No tuned model" not in evaluation.summary()


def test_power_of_several_runs_is_refused(here: Path) -> None:
    with pytest.raises(ConfigError, match="power is that of a single run, got further runs with runs"):
        adiabat.evaluate("model", "store", "pairs.jsonl", runs=["other"], power=True)


def test_a_result_without_power_says_nothing_of_it(here: Path) -> None:
    evaluation = adiabat.evaluate("model", "store", "pairs.jsonl", out="plain", resamples=100)
    assert evaluation.power == []
    assert "Power of" not in evaluation.summary()
    assert 'id="power"' not in (here / "plain" / "report.html").read_text(encoding="utf-8")


def test_inspect_says_what_the_queries_could_show(here: Path, run: Run) -> None:
    profile = adiabat.inspect("pairs.jsonl", model="model", store="store")
    evaluation = adiabat.evaluate("model", "store", "pairs.jsonl", power=True, resamples=100)
    assert profile.power == evaluation.power[0]
    command = "inspect pairs.jsonl --model model --store store"
    assert "power of pairs: 20" in run(command).out
    assert json.loads(run(command, "--json").out)["power"]["units"] == 20
    assert adiabat.inspect("pairs.jsonl", model="model").power is None


def test_inspect_refuses_a_store_that_it_cannot_use(here: Path) -> None:
    with pytest.raises(ConfigError, match='add model="MODEL"'):
        adiabat.inspect("pairs.jsonl", store="store")
    with pytest.raises(ConfigError, match="got the corpus corpus.jsonl; leave it out"):
        adiabat.inspect("corpus.jsonl", model="model", store="store")


def test_tune_ends_with_the_power_of_its_validation_queries(here: Path, run: Run) -> None:
    said = run(*tune("pairs.jsonl", out="job"))
    assert said.code == 0
    result = read_result(here / "job" / "result.json", Result)
    (power,) = result.power
    assert power.name.endswith(", validation")
    assert f"{power.name}: {power.units}" in said.err
    assert 'id="power"' in (here / "job" / "report.html").read_text(encoding="utf-8")


def test_validation_queries_are_ranked_before_and_after(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as evaluating the job against its start on them; of many, some are drawn."""
    tuned()
    store = Store.open("store")
    start, changed = adiabat.load("model"), adiabat.load("job")
    examples = address(read_examples("pairs.jsonl"), store)
    power = validation_power(start, changed, store, examples)
    evaluation = adiabat.evaluate(
        "job", "store", "pairs.jsonl", baseline="model", power=True, negatives="store", resamples=100
    )
    assert power is not None
    assert (power.detectable, power.excludable) == (
        evaluation.power[0].detectable,
        evaluation.power[0].excludable,
    )
    unchanged = validation_power(start, start, store, examples)
    assert unchanged is not None
    assert unchanged.spread == SPREAD
    monkeypatch.setattr("adiabat.evaluation.set_power.MOST_VALIDATION", 7)
    drawn = validation_power(start, changed, store, examples)
    assert drawn is not None
    assert (drawn.units, MOST_VALIDATION) == (7, 1_000)
    assert validation_power(start, changed, store, examples.take(np.array([3]))) is None
