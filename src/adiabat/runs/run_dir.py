"""Where the files of a job are, and what it leaves once it is over."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from adiabat.core.checksums import CHECKSUMS, require_seal
from adiabat.core.errors import JobError, ModelError

CONFIG = "config.toml"
PREPARED = "prepared"


@dataclass(frozen=True, slots=True)
class Job:
    """Paths of one job directory."""

    folder: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.folder / CONFIG

    @property
    def log(self) -> Path:
        """Losses and validations, one row each."""
        return self.folder / "log.jsonl"

    @property
    def prepared(self) -> Path:
        """What was made for the run before it began; it may stand in a directory where no job has begun yet."""
        return self.folder / PREPARED

    @property
    def checkpoints(self) -> Path:
        """Where the run can be taken up again."""
        return self.folder / "checkpoints"

    @property
    def model(self) -> Path:
        """The tuned model, there once the job is done."""
        return self.folder / "model"

    @property
    def result(self) -> Path:
        """What the run did, for programs."""
        return self.folder / "result.json"

    @property
    def trained(self) -> Path:
        """Hashes of the texts that it trained or validated on."""
        return self.folder / "trained.bin"

    @property
    def report(self) -> Path:
        """The same for people."""
        return self.folder / "report.html"

    @property
    def is_done(self) -> bool:
        """Whether its model and its result are there."""
        return self.model.is_dir() and self.result.is_file()

    def finished_model(self) -> Path:
        """The directory of the model, compared with its checksums; JobError while the job is not finished."""
        if not self.model.is_dir():
            raise JobError(f"{self.folder} is a job that is not finished; run its command again with --resume")
        if (self.folder / CHECKSUMS).exists():
            require_seal(self.folder, remedy=f"if it was changed on purpose, name a copy of {self.model} elsewhere", error=ModelError)
        return self.model

    def tidy(self, *, keep_model: bool) -> None:
        """Remove what a job of many needs no more once it has its row."""
        if not keep_model:
            shutil.rmtree(self.model, ignore_errors=True)
        # Last, so that what is left of a process that was killed is known by them.
        shutil.rmtree(self.checkpoints, ignore_errors=True)
