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
    MeasureSection,
    RunSection,
    SearchSettings,
    StoreSection,
)
from adiabat.config.tune import TuneDataSection, TuneRunSection, TuneSection, TuneSettings

__all__ = [
    "ColumnsSection",
    "DataSection",
    "DeviceSection",
    "EmbedDataSection",
    "EmbedSettings",
    "EncoderSection",
    "EvaluateSettings",
    "MeasureSection",
    "OptimizerName",
    "RunSection",
    "S",
    "ScalingRule",
    "ScheduleName",
    "SearchSettings",
    "Section",
    "StoreSection",
    "TuneDataSection",
    "TuneRunSection",
    "TuneSection",
    "TuneSettings",
    "checked",
    "keys_of",
    "read_settings",
]
