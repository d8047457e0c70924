"""Tuning jobs that kill themselves at given moments."""

import os
import signal
from pathlib import Path

from torch import Tensor

from adiabat.adiabatic import tuning_context as context
from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.runs.run_log import Validation
from adiabat.training import run_record
from tests.adiabatic.problem import Problem, killable_settings, problem_model, tuned

MOMENTS = ("step 2", "step 7", "validation 3", "model")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Killed(StoredDocuments):
    """Dies at a step or a validation."""

    moment = ""
    validations = 0

    def loss(self, step: int) -> Tensor:
        if self.moment == f"step {step}":
            die()
        return super().loss(step)

    def validate(self) -> Validation:
        self.validations += 1
        if self.moment == f"validation {self.validations}":
            die()
        return super().validate()


def run(folder: Path, moment: str) -> None:
    """A job with a checkpoint at each step."""
    vars(context)["StoredDocuments"] = Killed
    Killed.moment = moment
    if moment == "model":
        vars(run_record)["save"] = lambda model, folder: die()
    problem = Problem(problem_model(), folder / "store", folder / "triplets.jsonl")
    tuned(problem.context(), folder / moment, settings=killable_settings(checkpoint_seconds=0.001))
