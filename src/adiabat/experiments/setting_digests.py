"""Short digests of the settings of a sweep's runs: which of them share training data, and which a start."""

import hashlib
import json

from adiabat.config.dual_training import TrainSettings
from adiabat.experiments.grid import SweepTrial


def data_key(settings: TrainSettings) -> str:
    """Short digest of the settings that decide which pairs a run trains on."""
    return short_digest(settings.job.data, settings.reads_ids, settings.data.model_dump(mode="json", exclude={"cache"}))


def pairs_key(trial: SweepTrial) -> str:
    """Short digest that identifies a run's pairs in later calls of a sweep; the path counts where the grid varies it alone."""
    settings = trial.trained
    source = trial.varied.get("job.data")
    return short_digest(trial.variant, source, settings.reads_ids, settings.data.model_dump(mode="json", exclude={"cache"}))


def check_key(settings: TrainSettings) -> str:
    """Short digest of the settings that decide whether pairs suit a run."""
    train = settings.train.model_dump(mode="json", include={"loss", "batch_size", "keep", "error_unit"})
    return short_digest(train, *(getattr(settings, name).model_dump(mode="json") for name in ("batches", "mixture")))


def start_key(settings: TrainSettings) -> str:
    """Short digest of the settings that decide which model a run starts from."""
    tables = [getattr(settings, name).model_dump(mode="json") for name in ("encoder", "towers")]
    return short_digest(settings.job.model, settings.train.loss.ranks_by, *tables)


def has_random_projection(settings: TrainSettings) -> bool:
    """Whether a run adds a projection whose first weights its seed decides."""
    towers = settings.towers
    return towers.projection_start is None and (towers.projection_width is not None or towers.kind == "shared_projection")


def short_digest(*parts: object) -> str:
    """Twelve digits of a SHA-256."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
