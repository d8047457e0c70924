"""What a TOML file, or ``--set key=value``, may say: every setting with its meaning, range and default, and nothing else."""

from adiabat.config.reading import S, checked, keys_of, read_settings
from adiabat.config.section import OptimizerName, ScalingRule, ScheduleName, Section
from adiabat.config.shared import (
    ColumnsSection,
    DataSection,
    DeviceSection,
    EmbedDataSection,
    EmbedSettings,
    EncoderSection,
    EvaluateSettings,
    HeldOutSection,
    MeasureSection,
    RunSection,
    SearchSettings,
    StepsRunSection,
    StoreSection,
)
from adiabat.config.train import (
    JobSection,
    MemorySection,
    TowersSection,
    TrainDataSection,
    TrainRunSection,
    TrainSection,
    TrainSettings,
)
from adiabat.config.tune import TuneDataSection, TuneSection, TuneSettings

__all__ = [
    "ColumnsSection",
    "DataSection",
    "DeviceSection",
    "EmbedDataSection",
    "EmbedSettings",
    "EncoderSection",
    "EvaluateSettings",
    "HeldOutSection",
    "JobSection",
    "MeasureSection",
    "MemorySection",
    "OptimizerName",
    "RunSection",
    "S",
    "ScalingRule",
    "ScheduleName",
    "SearchSettings",
    "Section",
    "StepsRunSection",
    "StoreSection",
    "TowersSection",
    "TrainDataSection",
    "TrainRunSection",
    "TrainSection",
    "TrainSettings",
    "TuneDataSection",
    "TuneSection",
    "TuneSettings",
    "checked",
    "keys_of",
    "read_settings",
]
