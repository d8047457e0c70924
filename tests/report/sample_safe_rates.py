"""Small searches for the largest safe rate, for the tests of the report room."""

from typing import Any

from adiabat.results.rate_search_result import RateTrial, SafeRate
from tests.report.sample_results import CREATED

MEASURES = {"overlap loss": 1.0, "margins": 0.6, "turn": 0.2, "rotation share": 4.0}
"""What drift by each is, in that by the first."""

NOISE = {"overlap loss": 0.1, "margins": 0.06, "turn": 0.02, "rotation share": 0.3}
LIMIT = 0.0458
RATES = (1e-8, 2.15e-8, 4.64e-8, 1e-7, 2.15e-7, 4.64e-7, 1e-6, 2.15e-6, 4.64e-6, 1e-5)


def make_trial(rate: float, *, seed: int = 0, limit: float = LIMIT, factor: float = 1.0) -> RateTrial:
    """A run of 1,000 steps whose drift is ``factor 2000 rate t^0.8``, to the first check beyond the limit."""
    at: list[int] = []
    drift: list[float] = []
    for step in range(50, 1001, 50):
        at.append(step)
        drift.append(factor * 2000 * rate * step**0.8)
        if drift[-1] > limit:
            break
    if drift[-1] <= limit:
        return trial_of(rate, at, drift, seed=seed)
    reason = f"the drift of the probes (overlap loss) is {drift[-1]:.3g}, beyond the noise limit {limit:.3g}"
    return trial_of(rate, at, drift, at[-1], reason, seed=seed)


def trial_of(
    rate: float,
    steps: list[int],
    drift: list[float],
    left_at: int | None = None,
    reason: str = "",
    seed: int = 0,
) -> RateTrial:
    """A run with this drift by the first measure."""
    every = {name: [share * value for value in drift] for name, share in MEASURES.items()}
    return RateTrial(rate, seed, steps, every, left_at, reason, 12.5, "cpu")


def make_diverged(rate: float, *, checked: int = 0, left_at: int) -> RateTrial:
    """A run whose loss was no number any more, after as many checks."""
    steps = [50 * (place + 1) for place in range(checked)]
    return trial_of(rate, steps, [0.01] * checked, left_at, "the loss must be a finite number, got nan")


def make_safe_rate(trials: list[RateTrial], rate: float | None, **parts: Any) -> SafeRate:
    """A search with these runs; the limit is made of noise unless `noise` is given as empty."""
    told: dict[str, Any] = {
        "title": "The largest safe rate for tuning ade on squad",
        "command": "adiabat safe-rate ade store squad --out runs/safe",
        "seconds": sum(trial.seconds for trial in trials),
        "model": "ade",
        "measure": "overlap loss",
        "limit": LIMIT,
        "noise": NOISE,
        "probes": 680,
        "steps": 1000,
        "rates": list(RATES),
        "trials": trials,
        "settings": {"rate_search": {"steps": 1000}},
        "inputs": {"model": "ade", "store_sha256": "ab12"},
    }
    return SafeRate(rate=rate, **(CREATED | told | parts))


def full_search() -> SafeRate:
    """Down the search from 1e-5 to 4.64e-8, the first rate that stays within the limit."""
    return make_safe_rate([make_trial(rate) for rate in reversed(RATES) if rate >= 4.64e-8], 4.64e-8)


def seeds_search() -> SafeRate:
    """Two seeds: 1e-7 stays within with the first alone, 4.64e-8 with both."""
    factors = {(2.15e-7, 0): 1.0, (1e-7, 0): 0.88, (1e-7, 1): 1.1, (4.64e-8, 0): 1.0, (4.64e-8, 1): 1.3}
    trials = [make_trial(rate, seed=seed, factor=factor) for (rate, seed), factor in factors.items()]
    return make_safe_rate(trials, 4.64e-8)


def top_search() -> SafeRate:
    """One run, of the highest rate, which stays within."""
    return make_safe_rate([make_trial(1e-8)], 1e-8, rates=[1e-9, 1e-8], notes=["larger ones may be safe too"])


def unsafe_search() -> SafeRate:
    """No rate stays within; the limit was given."""
    trials = [make_trial(rate, limit=0.001) for rate in (1e-6, 1e-7, 1e-8)]
    return make_safe_rate(trials, None, limit=0.001, noise={}, rates=[1e-8, 1e-7, 1e-6])


def diverged_search() -> SafeRate:
    """The highest rates ran away, one before its first check and one in its first step; drift of the lowest
    stays 0.
    """
    first, second = make_diverged(1e-4, left_at=0), make_diverged(1e-5, left_at=3)
    still = trial_of(1e-8, list(range(50, 1001, 50)), [0.0] * 20)
    trials = [first, second, make_diverged(1e-6, checked=2, left_at=120), make_trial(1e-7), still]
    return make_safe_rate(trials, 1e-8, rates=[1e-8, 1e-7, 1e-6, 1e-5, 1e-4])


EVERY = {
    "full": full_search,
    "seeds": seeds_search,
    "top": top_search,
    "unsafe": unsafe_search,
    "diverged": diverged_search,
}
"""All of them, by name."""
