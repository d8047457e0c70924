"""A job is a directory of its own: nothing is put into what another job, model or store rewrites as a whole."""

from pathlib import Path

import pytest

from adiabat.core.errors import JobError
from adiabat.models.saving import save
from adiabat.runs.output_dir import open_job, require_free
from tests.tiny import tiny_dual


def test_a_directory_inside_a_job_is_refused(tmp_path: Path) -> None:
    open_job(tmp_path / "job", {"job": {"model": "tiny"}}, resume=False)
    for inner in ("model", "model/deep/er"):
        with pytest.raises(JobError, match=r"directory of its own, .* lies in the job, model or store .*job; choose another"):
            require_free(tmp_path / "job" / inner, resume=False)


def test_a_directory_inside_a_model_is_refused(tmp_path: Path) -> None:
    save(tiny_dual(), tmp_path / "model")
    with pytest.raises(JobError, match="lies in the job, model or store"):
        require_free(tmp_path / "model" / "job", resume=False)


def test_a_damaged_configuration_of_somebody_else_further_up_is_nobody_s_job(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("this is = not = TOML")
    require_free(tmp_path / "job", resume=False)
