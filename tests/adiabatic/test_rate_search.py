"""The largest safe rate: found by runs that end where they exceed the limit, and the same as whole runs of
every rate would find.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from adiabat.adiabatic.drift import MEASURES, TURN
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.reader import checked
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, InterruptionError, JobError
from adiabat.core.progress import Watch
from adiabat.experiments import rate_search as rate_search_module
from adiabat.experiments.rate_search import safe_rate
from adiabat.models.loading import load
from adiabat.report.rate_search_headline import lasts
from adiabat.results.rate_search_result import RateTrial, SafeRate
from adiabat.runs.run_config import Job, read_description
from adiabat.training.loop import Loop
from tests.adiabatic.problem import Problem, run, settings_of
from tests.jobs import log_of, weights_of
from tests.runs.before import forget

RATES = {"low": 3e-5, "high": 3e-2, "count": 4, "steps": 9, "checks": 3}
"""Rates a factor of ten apart, with three checks at each."""


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_search_module, "write_report", lambda result, folder: None)


def searched(
    problem: Problem, *, rate: float | None = None, most: float | None = None, **settings: Any
) -> TuneSettings:
    """Settings of a search, or of one run at a rate with the same guard."""
    table = settings_of().model_dump(exclude_defaults=True)
    del table["tune"]["learning_rate"]
    table["tune"] |= ({} if rate is None else {"learning_rate": rate}) | settings.pop("tune", {})
    guard = {"probes": str(problem.data.with_name("probes.txt")), "depth": 10, "measure": TURN}
    table["guard"] = guard if most is None else {**guard, "limit": most}
    own = settings.pop("rate_search", {})
    if rate is None:
        table["rate_search"] = {**RATES, **own}
    return checked(TuneSettings, {**table, **settings})


def search(problem: Problem, out: Path, settings: TuneSettings, *, resume: bool = False) -> SafeRate:
    """Look for the safe rate of a problem."""
    return safe_rate(problem.context(), out, settings=settings, resume=resume, watch=Watch())


def timeless(trials: list[RateTrial]) -> list[RateTrial]:
    """All of them, but the seconds."""
    return [replace(one, seconds=0.0) for one in trials]


def middle(whole: dict[float, list[float]], place: int) -> float:
    """A limit between the furthest that a rate goes, and what the next one reaches."""
    rates = sorted(whole)
    return (max(whole[rates[place]]) + max(whole[rates[place + 1]])) / 2


@pytest.fixture(scope="module")
def whole(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> dict[float, list[float]]:
    """Rate to its drift at every check, by ordinary jobs that nothing ends early."""
    found, once = {}, {"batches_per_epoch": 3, "max_epochs": 3, "keep": "last"}
    for rate in searched(problem).rate_search.values():
        out = tmp_path_factory.mktemp("whole") / "job"
        run(problem, out, searched(problem, rate=rate, tune=once))
        rows = [row for row in log_of(out) if row["step"] and "validation_loss" in row]
        found[rate] = [row[f"validation_{TURN}"] for row in rows]
    return found


def test_the_answer_is_that_of_whole_runs_at_every_rate(
    problem: Problem, whole: dict[float, list[float]], tmp_path: Path
) -> None:
    rates = sorted(whole)
    for place, rate in enumerate(rates[:-1]):
        most = middle(whole, place)
        found = search(problem, tmp_path / f"{place}", searched(problem, most=most))
        assert found.rate == rate
        assert found.limit == most
        assert [one.rate for one in found.trials] == rates[: place - 1 : -1] if place else rates[::-1]
        for one in found.trials:
            beyond = [check for check, drift in enumerate(whole[one.rate]) if drift > most]
            assert one.left_at == (3 * (beyond[0] + 1) if beyond else None)
            assert one.steps == [3, 6, 9][: len(one.steps)]
            assert one.drift[TURN] == whole[one.rate][: len(one.steps)]
            assert set(one.drift) == set(MEASURES)


def test_the_limit_is_made_of_what_the_last_full_stop_does(problem: Problem, tmp_path: Path) -> None:
    found = search(problem, tmp_path / "out", searched(problem))
    assert found.noise[TURN] > 0
    assert found.limit == pytest.approx(found.noise[TURN] * (1.1**2 - 1) ** 0.5)
    assert found.rate == max(one.rate for one in found.trials if one.left_at is None)


def test_no_rate_is_safe_where_the_lowest_leaves_too(problem: Problem, tmp_path: Path) -> None:
    found = search(problem, tmp_path / "out", searched(problem, most=1e-9))
    assert found.rate is None
    assert [one.left_at for one in found.trials] == [3] * 4
    assert lasts(found) is None
    (note,) = found.notes
    assert "exceeds the limit; lower rate_search.low" in note


def test_a_rate_is_safe_if_it_is_with_every_seed(
    problem: Problem, whole: dict[float, list[float]], tmp_path: Path
) -> None:
    rates = sorted(whole)
    seeds = {"seeds": 3}
    found = search(problem, tmp_path / "out", searched(problem, most=middle(whole, 1), rate_search=seeds))
    assert found.rate == rates[1]
    # What exceeded the limit with one seed needs no second.
    tried = [(one.rate, one.seed) for one in found.trials]
    assert tried == [(rates[3], 0), (rates[2], 0), *((rates[1], seed) for seed in range(3))]
    assert len({tuple(one.drift[TURN]) for one in found.trials if one.rate == rates[1]}) == 3


def cut_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Interrupt whatever is stepped, once; the list has the number of every step that is taken, and -1 for
    the cut.
    """
    taken: list[int] = []
    step = Loop.step

    def cut(self: Loop) -> None:
        if len(taken) == steps:
            taken.append(-1)
            raise InterruptionError("cut")
        taken.append(self.position.step)
        step(self)

    monkeypatch.setattr(Loop, "step", cut)
    return taken


def test_a_search_that_was_cut_short_goes_on_where_it_was(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = searched(problem, most=0.05, run={"checkpoint_seconds": 1e-6, "log_every": 3})
    expected = search(problem, tmp_path / "straight", settings)
    taken = cut_after(7, monkeypatch)
    with pytest.raises(InterruptionError):
        search(problem, tmp_path / "cut", settings)
    with pytest.raises(JobError, match=r"holds a search for a safe rate already; .* resume=True"):
        search(problem, tmp_path / "cut", settings)
    found = search(problem, tmp_path / "cut", settings, resume=True)
    assert timeless(found.trials) == timeless(expected.trials)
    assert taken.count(-1) == 1
    # Every step was taken once.
    assert len(taken) - 1 == sum(one.steps[-1] for one in expected.trials)
    assert not list((tmp_path / "cut").rglob("checkpoints"))


def test_a_search_may_grow_and_nothing_else_may_change(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = searched(problem, most=1e-9, rate_search={"low": 3e-4, "count": 3})
    first = search(problem, tmp_path / "out", smaller)
    other = searched(problem, most=1e-9, tune={"loss": {"margin": 0.2}})
    with pytest.raises(JobError, match="tune.loss.margin was 0.3, is 0.2"):
        search(problem, tmp_path / "out", other, resume=True)
    begun: list[float] = []
    begin = Loop._begin
    monkeypatch.setattr(Loop, "_begin", lambda self: (begun.append(self.learning_rate), begin(self))[1])
    grown = search(problem, tmp_path / "out", searched(problem, most=1e-9), resume=True)
    assert begun == [3e-5]
    assert grown.trials[:3] == first.trials


@pytest.mark.parametrize("checks", [3, 9])
def test_a_run_that_diverges_exceeds_the_limit(problem: Problem, tmp_path: Path, checks: int) -> None:
    """With a check at every step it is the vectors of the probes that are no numbers, with one at every third
    the loss before.
    """
    apart = {"low": 3e-4, "high": 1e30, "count": 2, "checks": checks}
    found = search(problem, tmp_path / "out", searched(problem, most=3.0, rate_search=apart))
    assert found.rate == 3e-4
    assert found.trials[0].left_at is not None
    told = "vectors of the probes must be finite" if checks == 9 else "must be a finite number"
    assert told in found.trials[0].reason


def change_row(path: Path, number: int, **changes: Any) -> None:
    """Change a row in the file of rows."""
    table = pq.read_table(path).to_pylist()
    table[number]["record"] = json.dumps({**json.loads(table[number]["record"]), **changes})
    pq.write_table(pa.Table.from_pylist(table), path)


def test_a_seed_that_left_has_left_whoever_asks_for_it(problem: Problem, tmp_path: Path) -> None:
    two = {"low": 3e-4, "high": 3e-3, "count": 2}
    twice = searched(problem, most=3.0, rate_search={**two, "seeds": 2})
    assert search(problem, tmp_path / "out", twice).rate == 3e-3
    change_row(tmp_path / "out" / "trials.parquet", 1, left_at=9)
    once = searched(problem, most=3.0, rate_search=two)
    assert search(problem, tmp_path / "out", once, resume=True).rate == 3e-4


@pytest.mark.parametrize("drift", [{}, {"overlap loss": [0.1]}, {"turn": []}])
def test_a_row_that_lacks_what_was_checked_is_told(
    problem: Problem, tmp_path: Path, drift: dict[str, list[float]]
) -> None:
    settings = searched(problem, most=3.0)
    search(problem, tmp_path / "out", settings)
    change_row(tmp_path / "out" / "trials.parquet", 0, drift=drift)
    with pytest.raises(JobError, match=r"trials.parquet must .* got: rate 0.03, seed 0 without a drift"):
        search(problem, tmp_path / "out", settings, resume=True)


def test_a_rate_that_stayed_within_stays_the_answer_on_another_grid(problem: Problem, tmp_path: Path) -> None:
    assert search(problem, tmp_path / "out", searched(problem, most=3.0)).rate == 3e-2
    other = searched(problem, most=3.0, rate_search={"low": 1e-4, "high": 1e-3, "count": 2})
    again = search(problem, tmp_path / "out", other, resume=True)
    assert again.rate == 3e-2
    assert again.rates == [1e-4, 1e-3, 3e-2]


def test_a_search_needs_a_rate_to_find_and_steps_behind_the_warm_up(problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rate_search.kind must be safe .*, got none"):
        search(problem, tmp_path / "out", searched(problem, rate=1e-3))
    with pytest.raises(ConfigError, match=r"tune.warmup_steps must be below rate_search.steps = 9, got 9"):
        search(problem, tmp_path / "out", searched(problem, tune={"warmup_steps": 9}))
    with pytest.raises(ConfigError, match=r"rate_search.count must .*, got 10 from 1e-08 to 1.01e-08"):
        searched(problem, rate_search={"low": 1e-8, "high": 1.01e-8, "count": 10})
    assert not (tmp_path / "out").exists()


def test_a_job_with_a_safe_rate_is_one_with_that_rate_and_limit(problem: Problem, tmp_path: Path) -> None:
    found = search(problem, tmp_path / "search", searched(problem))
    results = [
        run(problem, tmp_path / "safe", searched(problem)).training,
        run(problem, tmp_path / "number", searched(problem, rate=found.rate, most=found.limit)).training,
    ]
    safe, number = (load(tmp_path / name / "model").query for name in ("safe", "number"))
    assert weights_of(safe) == weights_of(number)
    assert log_of(tmp_path / "safe") == log_of(tmp_path / "number")
    description = read_description(Job(tmp_path / "safe"))
    assert description["rate_search"]["kind"] == "safe"
    assert "learning_rate" not in description["tune"]
    said = "the learning rate is the largest safe one that rate-search/report.html found"
    assert [said in one.notes for one in results] == [True, False]


def test_a_search_goes_on_with_the_same_probes_alone(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, table = tmp_path / "probes.txt", searched(problem, most=0.05).model_dump(exclude_unset=True)
    own.write_text("".join(f"probe {number} of nothing\n" for number in range(24)), encoding="utf-8")
    table["guard"]["probes"] = str(own)
    settings = checked(TuneSettings, table)
    cut_after(2, monkeypatch)
    with pytest.raises(InterruptionError):
        search(problem, tmp_path / "search", settings)
    own.write_text("".join(f"another probe {number}\n" for number in range(24)), encoding="utf-8")
    with pytest.raises(JobError, match="a difference: the probes differ"):
        search(problem, tmp_path / "search", settings, resume=True)


def test_a_job_of_before_digests_of_probes_goes_on(problem: Problem, tmp_path: Path) -> None:
    settings = searched(problem, rate=1e-3)
    whole = run(problem, tmp_path / "job", settings)
    forget(Job(tmp_path / "job"), "job.probes", "job.probed_vectors")
    again = run(problem, tmp_path / "job", settings, resume=True)
    assert again.training.validation_loss == whole.training.validation_loss
    forget(Job(tmp_path / "job"), "job.query_tower")
    with pytest.raises(JobError, match="the query tower of the model differs"):
        run(problem, tmp_path / "job", settings, resume=True)


def test_other_settings_are_told_before_the_data_are_read(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_after(2, monkeypatch)
    with pytest.raises(InterruptionError):
        search(problem, tmp_path / "search", searched(problem, most=0.05))
    monkeypatch.setattr(TuningContext, "examples", lambda self, section: pytest.fail("read"))
    with pytest.raises(JobError, match=r"guard.limit was 0.05, is 0.06"):
        search(problem, tmp_path / "search", searched(problem, most=0.06), resume=True)


def test_a_job_that_was_cut_short_in_its_search_goes_on(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = searched(problem, run={"checkpoint_seconds": 1e-6})
    run(problem, tmp_path / "straight", settings)
    taken = cut_after(5, monkeypatch)
    with pytest.raises(InterruptionError):
        run(problem, tmp_path / "cut", settings)
    assert not (tmp_path / "cut" / "log.jsonl").exists()
    run(problem, tmp_path / "cut", settings, resume=True)
    # The search's second run went on behind its second step.
    assert taken[:7] == [0, 1, 2, 0, 1, -1, 2]
    one, other = (load(tmp_path / name / "model").query for name in ("straight", "cut"))
    assert weights_of(one) == weights_of(other)


def test_a_job_without_any_safe_rate_says_what_to_do(problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="must stay within the limit .* got none: the lowest, 3e-05, .* lower"):
        run(problem, tmp_path / "job", searched(problem, most=1e-9))


def test_torch_draws_are_left_as_they_were(problem: Problem, tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    search(problem, tmp_path / "out", searched(problem, most=1e-9))
    assert torch.equal(before, torch.get_rng_state())
