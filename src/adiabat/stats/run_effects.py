"""How much a mean over runs of several seeds would move, had other seeds been taken.

Three seeds say little about how much runs differ, and drawing three of three makes intervals too narrow by a fifth and more. So

- the deviations of all runs from the mean of their model are one pool that each model draws from (runs of one length on one scale differ
  alike), widened by ``sqrt(S / (S - 1))`` since a mean lies closer to its own runs than the truth does;
- what was drawn is multiplied by ``sqrt(f / chi2_f)`` in each resample, f the degrees of freedom: how much runs differ is itself only
  estimated, and that is what makes a t distribution out of a normal one.

Runs differ in part because each happens to be better on other units. Resamples of units vary by that as well, and adding the two would
count it twice. It is known well, from many units, so it is taken off the spread of the resamples, and what runs deviate by is left whole.

A model of one run has no deviation, and adds none: it stands for itself, as a model does that nobody trains anew.

References: Davison and Hinkley 1997, section 3.8 (several sources of variation); Owen 2007 (the pigeonhole bootstrap, and what it counts
twice).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True, slots=True)
class RunEffect:
    """What runs do to the mean over the runs of one model, or to a difference of two.

    Attributes:
        shift: What other runs would have added, in each resample; without `RunResamples.widening`.
        variance: How much of the variance over resamples of units comes from runs being better on different units.
    """

    shift: Float[np.ndarray, " r"]
    variance: float

    def less(self, baseline: "RunEffect") -> "RunEffect":
        """That of a difference.

        Args:
            baseline: Of what is taken off.

        Returns:
            The effect on the difference.
        """
        return RunEffect(self.shift - baseline.shift, self.variance + baseline.variance)


@dataclass(frozen=True, slots=True)
class RunResamples:
    """Which runs each resample takes.

    Attributes:
        runs: How many runs each model has.
        indices: Of as many deviations in the pool as there are runs of models that have several, the first model's first.
        widening: Factor on what was drawn, ``sqrt(f / chi2_f)``.
    """

    runs: tuple[int, ...]
    indices: Int[np.ndarray, "r p"]
    widening: Float[np.ndarray, " r"]

    @property
    def freedom(self) -> int:
        """f, the degrees of freedom that the deviation of runs is known with; 0 where no model has several."""
        return sum(count - 1 for count in self.runs if count > 1)

    @classmethod
    def draw(cls, runs: Sequence[int], *, resamples: int, generator: np.random.Generator) -> "RunResamples":
        """Choose runs for every resample; measures of the same models share them.

        Args:
            runs: How many each model has.
            resamples: How many, > 0.
            generator: Of the choice.

        Returns:
            The choice.
        """
        unvaried = cls(tuple(runs), np.zeros((resamples, 0), dtype=np.int64), np.ones(resamples))
        pool = sum(count for count in runs if count > 1)
        if not pool:
            return unvaried
        indices = generator.integers(0, pool, size=(resamples, pool))
        widening = np.sqrt(unvaried.freedom / generator.chisquare(unvaried.freedom, size=resamples))
        return replace(unvaried, indices=indices, widening=widening)

    def effects(self, values: Sequence[Float[np.ndarray, "1 _"]], draws: Sequence[Float[np.ndarray, "r _"]]) -> list[RunEffect]:
        """What runs do to one measure.

        Args:
            values: Value of each run, for each model.
            draws: The same on each resample of the units.

        Returns:
            One effect for each model; none on a model of one run.
        """
        several = [i for i, count in enumerate(self.runs) if count > 1]
        effects = [RunEffect(np.zeros(len(self.widening)), 0.0) for _ in self.runs]
        if not several:
            return effects
        pool = np.concatenate([_deviations(values[i])[0] for i in several])
        variance = float(np.mean([np.nanvar(_deviations(draws[i]), axis=0).mean() for i in several]))
        ends = np.cumsum([self.runs[i] for i in several])[:-1]
        for i, deviations in zip(several, np.split(pool[self.indices], ends, axis=1), strict=True):
            effects[i] = RunEffect(deviations.mean(axis=1), variance / self.runs[i])
        return effects


def _deviations(values: Float[np.ndarray, "r s"]) -> Float[np.ndarray, "r s"]:
    """From the mean over runs, widened; 0 where they are of the last digits alone."""
    runs = values.shape[1]
    deviations = values - values.mean(axis=1, keepdims=True)
    deviations[np.abs(deviations) <= 1e-12 * np.abs(values)] = 0
    return np.asarray(deviations * np.sqrt(runs / (runs - 1)))
