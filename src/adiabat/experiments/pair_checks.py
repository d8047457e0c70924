"""The training pairs of a sweep, read once and checked against every run that trains on them."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from adiabat.core.errors import AdiabatError, ConfigError, DataError, several
from adiabat.core.progress import Watch
from adiabat.data.pair_sets import PairSet
from adiabat.dual_encoder.batches import sampler_of
from adiabat.dual_encoder.dataset_cache import cache_folder
from adiabat.dual_encoder.pair_data import read_pairs
from adiabat.dual_encoder.train import check_pairs
from adiabat.experiments.grid import SweepTrial
from adiabat.experiments.setting_digests import check_key, data_key


def read_checked(trial: SweepTrial, trials: Sequence[SweepTrial], watch: Watch) -> tuple[str, int]:
    """SHA-256 of the training and validation pairs of a run, and the number of training pairs.

    Args:
        trials: All runs of the sweep; the pairs are checked against each run that has the same data.
    """
    settings = trial.trained
    try:
        if settings.data.stream is not None:
            raise ConfigError("data.stream must be left out of a sweep, which reads all pairs first; leave it out")
        cache = cache_folder(settings.data.cache)
        training, validation = read_pairs(settings.job.data, settings.data, stored=settings.reads_ids, cache=cache, watch=watch)
    except AdiabatError as fault:
        raise DataError(_named(trial, fault)) from fault
    alike = [one for one in trials if data_key(one.trained) == data_key(settings)]
    if faults := list(_faults(training, validation, alike)):
        raise DataError(several(faults))
    digest = hashlib.sha256(" ".join([training.digest(), validation.digest()]).encode()).hexdigest()
    return digest, len(training)


def _faults(training: PairSet, validation: PairSet, trials: Sequence[SweepTrial]) -> Iterator[str]:
    # Planned without tokens, which take the model: that finds batches by topic of data that has one topic alone.
    tokens = np.zeros(len(training), dtype=np.int64)
    distinct: dict[str, SweepTrial] = {}
    for trial in trials:
        distinct.setdefault(check_key(trial.trained), trial)
    for trial in distinct.values():
        try:
            check_pairs(training, validation, trial.trained)
            sampler_of(trial.trained, training, tokens=tokens)
        except AdiabatError as fault:
            yield _named(trial, fault)


def _named(trial: SweepTrial, fault: AdiabatError) -> str:
    return f"{trial.case}: {fault}" if trial.case else str(fault)
