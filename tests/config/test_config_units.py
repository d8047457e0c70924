"""Settings with a unit: spans of time. Amounts of memory are tested where a plan has them."""

import pytest

from adiabat.config.budgets import PlanSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import read_settings
from adiabat.core.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "seconds"), [("8h", 28_800), ("90min", 5_400), ("7d", 604_800), ("1.5 h", 5_400), ("0.5s", 0.5), ("41", 41), ("2.5", 2.5)]
)
def test_a_time_may_have_a_unit(given: str, seconds: float) -> None:
    assert read_settings(TrainSettings, None, [f"train.budget_seconds={given}"]).train.budget_seconds == seconds
    assert read_settings(PlanSettings, None, [f"plan.budget_seconds={given}", "plan.runs=scaling"]).plan.budget_seconds == seconds


NO_TIME = ["soon", "8 hours", "1h30min", "-8h", f"{'9' * 310}h"]


@pytest.mark.parametrize(
    ("given", "told"),
    [*((text, "a number of seconds, or text with a unit") for text in NO_TIME), *((text, "> 0, got") for text in ("0", "0h", "-3"))],
)
def test_what_is_no_time_is_refused(given: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^train.budget_seconds must be {told}"):
        read_settings(TrainSettings, None, [f"train.budget_seconds={given}"])
