"""What an earlier demo has finished is not done again, and what it has not is."""

from pathlib import Path

import pytest

import adiabat
from adiabat.api import tune_verb as demo_job
from adiabat.results.evaluation_result import Result

EVALUATED = Result(title="", command="", created="", seconds=0.0, seed=0, versions={}, model="")


@pytest.mark.parametrize(
    ("left", "resumed"),
    [
        ((), [False]),
        (("config.toml",), [True]),
        (("config.toml", "model"), [True]),
        (("config.toml", "result.json"), [True]),
        (("config.toml", "model", "result.json"), []),
    ],
)
def test_only_a_job_with_model_and_result_is_finished_and_one_that_was_begun_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: tuple[str, ...], resumed: list[bool]
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for name in left:
        if name == "model":
            (job / name).mkdir()
        else:
            (job / name).write_text("[job]\n" if name == "config.toml" else "{}")
    tuned: list[bool] = []
    monkeypatch.setattr(adiabat, "embed", lambda *_, **__: None)
    monkeypatch.setattr(adiabat, "tune", lambda *_, resume, **__: tuned.append(resume))
    monkeypatch.setattr(adiabat, "evaluate", lambda *_, **__: EVALUATED)
    assert demo_job.run_demo(tmp_path) is EVALUATED
    assert tuned == resumed
