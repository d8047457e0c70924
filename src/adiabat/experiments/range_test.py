"""The range test before a run: the rate with the lowest validation loss within the drift limit.

Log and checkpoints of the trial of that rate become those of the run, which goes on from there.
"""

import math
from itertools import product
from statistics import fmean

from adiabat.config.tuning import TuneSettings
from adiabat.core.disk import copy_folder, make_folder, move
from adiabat.core.errors import JobError
from adiabat.core.files import LARGEST_LOG, read_plain, sole_writer, write_bytes
from adiabat.experiments.rate_trials import RateTrials, name_of
from adiabat.results.rate_search_result import RateTrial
from adiabat.runs.run_config import Job


def range_test(trials: RateTrials) -> TuneSettings:
    """Run every rate, or lower ones until one stays within the limit; return the settings of the lowest
    validation loss.

    A test that has used its share of the time limit ends after the first rate that stays within the drift
    limit.
    """
    make_folder(trials.folder)
    with sole_writer(trials.folder):
        losses = _losses_within_the_limit(trials)
    rate = _lowest(losses)
    if not math.isfinite(losses[rate]):
        raise JobError(
            "one rate of the range test must stay within the guard's limit until its first validation, "
            f"got none down to {rate:g}; lower rate_search.low, or raise guard.limit, and start again"
        )
    listed = []
    for tried, loss in losses.items():
        listed.append(f"{tried:.2g}: {loss:.4f}" if math.isfinite(loss) else f"{tried:.2g}: none")
    judged = "1 - nDCG@10" if trials.settings.tune.keep == "ranking" else "validation loss"
    trials.watch.note(
        f"range test: lowest {judged} within the drift limit by rate: {', '.join(listed)}; tuning at {rate:g}"
    )
    guard = trials.context.guard(trials.settings)
    assert guard is not None
    continued = hand_over(trials, rate)
    # The clock of the run counts the trial that it goes on from.
    spent = sum(trial.seconds for trial in trials.rows.every if trial is not continued)
    return trials.at(rate, guard.limit, spent)


def _losses_within_the_limit(trials: RateTrials) -> dict[float, float]:
    """Make the trials; files of all but the best trial are removed as soon as it is known."""
    rates = sorted(trials.section.values(), reverse=True)
    # As many rates again below the lowest, each by the same factor, if none stays within the limit.
    factor = rates[-1] / rates[-2]
    lower = [rates[-1] * factor**step for step in range(1, 1 + len(rates))]
    trials.make_at_once(list(product(rates, trials.seeds)))
    losses: dict[float, float] = {}
    for rate in (*rates, *lower):
        found = any(map(math.isfinite, losses.values()))
        if found and (rate < rates[-1] or trials.is_late):
            break
        for seed in trials.seeds:
            trials.stays(rate, seed)
        losses = _mean_losses(trials)
        kept = (_lowest(losses), trials.settings.run.seed)
        for trial in trials.rows.every:
            if trial.rate in losses and (trial.rate, trial.seed) != kept:
                trials.clear(trial.rate, trial.seed)
    return losses


def _lowest(losses: dict[float, float]) -> float:
    """The rate of the lowest loss; of equal losses, the lowest rate."""
    return min(sorted(losses), key=losses.__getitem__)


def _mean_losses(trials: RateTrials) -> dict[float, float]:
    """The validation loss of each rate that has a trial of every seed, whenever these were made, averaged
    over the seeds.
    """
    losses = {}
    for rate in sorted({trial.rate for trial in trials.rows.every}, reverse=True):
        names = [name_of(rate, seed) for seed in trials.seeds]
        if all(name in trials.rows for name in names):
            losses[rate] = fmean(_lowest_loss(trials.rows[name]) for name in names)
    return losses


def _lowest_loss(trial: RateTrial) -> float:
    """The lowest validation loss within the limit; infinite if there is none, or if the trial diverged, as
    the run would.
    """
    within = trial.losses if trial.left_at is None else trial.losses[:-1]
    return math.inf if trial.diverged else min(within, default=math.inf)


def hand_over(trials: RateTrials, rate: float) -> RateTrial | None:
    """Make the log and the checkpoints of a trial those of the run; returns the trial, or None if the run
    begins anew.
    """
    trial = trials.rows[name_of(rate, trials.settings.run.seed)]
    made, run = trials.job_of(rate, trial.seed), Job(trials.folder.parent)
    if not trials.settings.continues_trial or trial.left_at is not None or not made.log.exists():
        return None
    rows = read_plain(made.log, limit=LARGEST_LOG, error=JobError)
    if not run.checkpoints.exists() and made.checkpoints.exists():
        if made.board.exists():
            copy_folder(made.board, run.board)
        # Last, and at once: a run that has checkpoints has the log up to them.
        write_bytes(rows, run.log)
        move(made.checkpoints, run.checkpoints)
    if not run.checkpoints.exists():
        return None
    # Rows of a log have seconds and a checksum of all rows before, so only a run that took them over begins
    # with those of the trial.
    begun = read_plain(run.log, limit=LARGEST_LOG, error=JobError)
    return trial if begun.startswith(rows) else None
