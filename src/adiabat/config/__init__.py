"""What a TOML file, or ``--set key=value``, may say: every setting with its meaning, range and default, and nothing else."""

from adiabat.config.compare import CompareBackbonesSettings, CompareDataSettings, CompareSettings, comparison_of
from adiabat.config.distil import AblateSettings, DistilStaticSettings
from adiabat.config.inspect import InspectSettings
from adiabat.config.makers import ArxivSettings, HotpotqaSettings, MsmarcoSettings, SquadSettings, XnliSettings
from adiabat.config.mine import MineSettings
from adiabat.config.plan import PlanSettings
from adiabat.config.reading import S, checked, keys_of, read_settings
from adiabat.config.section import Exhausted, MixtureRule, OptimizerName, ScalingRule, ScheduleName, Section
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
    RankingEncoderSection,
    RankingMeasureSection,
    RunSection,
    SearchSettings,
    StepsRunSection,
    StoreSection,
)
from adiabat.config.space import SpaceSection, SpaceSettings
from adiabat.config.study import StudySettings
from adiabat.config.suite import CompareRunsSettings, SuiteSettings
from adiabat.config.sweep import SweepSettings
from adiabat.config.teach import FitSettings, MultilingualSettings
from adiabat.config.train import JobSection, MemorySection, TowersSection, TrainRunSection, TrainSection, TrainSettings
from adiabat.config.train_data import BatchesSection, MixtureSection, SourceSection, TrainDataSection
from adiabat.config.tune import GuardSection, LadderSection, RehearsalSection, TuneDataSection, TuneSection, TuneSettings

__all__ = [
    "AblateSettings",
    "ArxivSettings",
    "BatchesSection",
    "ColumnsSection",
    "CompareBackbonesSettings",
    "CompareDataSettings",
    "CompareRunsSettings",
    "CompareSettings",
    "DataSection",
    "DeviceSection",
    "DistilStaticSettings",
    "EmbedDataSection",
    "EmbedSettings",
    "EncoderSection",
    "EvaluateSettings",
    "Exhausted",
    "FitSettings",
    "GuardSection",
    "HeldOutSection",
    "HotpotqaSettings",
    "InspectSettings",
    "JobSection",
    "LadderSection",
    "MeasureSection",
    "MemorySection",
    "MineSettings",
    "MixtureRule",
    "MixtureSection",
    "MsmarcoSettings",
    "MultilingualSettings",
    "OptimizerName",
    "PlanSettings",
    "RankingEncoderSection",
    "RankingMeasureSection",
    "RehearsalSection",
    "RunSection",
    "S",
    "ScalingRule",
    "ScheduleName",
    "SearchSettings",
    "Section",
    "SourceSection",
    "SpaceSection",
    "SpaceSettings",
    "SquadSettings",
    "StepsRunSection",
    "StoreSection",
    "StudySettings",
    "SuiteSettings",
    "SweepSettings",
    "TowersSection",
    "TrainDataSection",
    "TrainRunSection",
    "TrainSection",
    "TrainSettings",
    "TuneDataSection",
    "TuneSection",
    "TuneSettings",
    "XnliSettings",
    "checked",
    "comparison_of",
    "keys_of",
    "read_settings",
]
