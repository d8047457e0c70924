"""adiabat: tune, train, distill, measure and plan dual-encoder text-embedding models.

The public interface has every verb of the command line as a function, the errors, the settings, and the
classes that functions return. Names are loaded on first use, so that importing the package loads nothing
heavy.

All functions raise AdiabatError for unusable inputs, settings and directories; its message says what is
wrong, where, and what to do. They raise TypeError for an argument of a wrong type, and for a keyword that
names no setting.
"""

import ast
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from adiabat.core.version import __version__

# The public names, once: type checkers and editors read these imports, and `_modules` reads them for loading
# on first use.
if TYPE_CHECKING:
    from adiabat.api.advise_verb import advise as advise
    from adiabat.api.check_verb import EndpointCheck as EndpointCheck
    from adiabat.api.check_verb import check as check
    from adiabat.api.compare_verb import compare as compare
    from adiabat.api.data_verbs import inspect as inspect
    from adiabat.api.data_verbs import make as make
    from adiabat.api.data_verbs import mine as mine
    from adiabat.api.distill_verb import distill_ablate as distill_ablate
    from adiabat.api.distill_verb import distill_fit as distill_fit
    from adiabat.api.distill_verb import distill_multilingual as distill_multilingual
    from adiabat.api.distill_verb import distill_pair as distill_pair
    from adiabat.api.distill_verb import distill_static as distill_static
    from adiabat.api.embed_verb import compact as compact
    from adiabat.api.embed_verb import delete as delete
    from adiabat.api.embed_verb import embed as embed
    from adiabat.api.embed_verb import import_vectors as import_vectors
    from adiabat.api.evaluate_verb import evaluate as evaluate
    from adiabat.api.evaluate_verb import evaluate_suite as evaluate_suite
    from adiabat.api.experiment_verbs import plan as plan
    from adiabat.api.experiment_verbs import safe_rate as safe_rate
    from adiabat.api.experiment_verbs import scaling as scaling
    from adiabat.api.experiment_verbs import sweep as sweep
    from adiabat.api.export_verb import Exported as Exported
    from adiabat.api.export_verb import export as export
    from adiabat.api.label_verb import label as label
    from adiabat.api.search_verb import SearchResult as SearchResult
    from adiabat.api.search_verb import search as search
    from adiabat.api.serve_verb import serve as serve
    from adiabat.api.space_verb import space as space
    from adiabat.api.tenants_verb import tune_tenants as tune_tenants
    from adiabat.api.train_verb import estimate as estimate
    from adiabat.api.train_verb import train as train
    from adiabat.api.tune_verb import demo_files as demo_files
    from adiabat.api.tune_verb import tune as tune
    from adiabat.api.upgrade_verb import Upgraded as Upgraded
    from adiabat.api.upgrade_verb import upgrade as upgrade
    from adiabat.api.watch_verb import watch as watch
    from adiabat.config.budgets import PlanSettings as PlanSettings
    from adiabat.config.budgets import ScalingSettings as ScalingSettings
    from adiabat.config.checking import CheckSettings as CheckSettings
    from adiabat.config.checking import WatchSettings as WatchSettings
    from adiabat.config.dataset_settings import ArxivSettings as ArxivSettings
    from adiabat.config.dataset_settings import HotpotqaSettings as HotpotqaSettings
    from adiabat.config.dataset_settings import InspectSettings as InspectSettings
    from adiabat.config.dataset_settings import LabelSettings as LabelSettings
    from adiabat.config.dataset_settings import MineSettings as MineSettings
    from adiabat.config.dataset_settings import MsmarcoSettings as MsmarcoSettings
    from adiabat.config.dataset_settings import SquadSettings as SquadSettings
    from adiabat.config.dataset_settings import XnliSettings as XnliSettings
    from adiabat.config.distillation import AblateSettings as AblateSettings
    from adiabat.config.distillation import DistillStaticSettings as DistillStaticSettings
    from adiabat.config.distillation import FitSettings as FitSettings
    from adiabat.config.distillation import MultilingualSettings as MultilingualSettings
    from adiabat.config.dual_training import TrainSettings as TrainSettings
    from adiabat.config.exporting import ExportSettings as ExportSettings
    from adiabat.config.serving import ServeSettings as ServeSettings
    from adiabat.config.shared import AdviseSettings as AdviseSettings
    from adiabat.config.shared import EmbedSettings as EmbedSettings
    from adiabat.config.shared import EncoderSection as EncoderSection
    from adiabat.config.shared import EvaluateSettings as EvaluateSettings
    from adiabat.config.shared import SearchSettings as SearchSettings
    from adiabat.config.sweeps import TrainSweepSettings as TrainSweepSettings
    from adiabat.config.sweeps import TuneSweepSettings as TuneSweepSettings
    from adiabat.config.tasks import CompareSettings as CompareSettings
    from adiabat.config.tasks import SpaceSettings as SpaceSettings
    from adiabat.config.tasks import SuiteSettings as SuiteSettings
    from adiabat.config.tenant_towers import TenantSettings as TenantSettings
    from adiabat.config.tuning import TuneSettings as TuneSettings
    from adiabat.core.errors import AdiabatError as AdiabatError
    from adiabat.core.errors import BudgetError as BudgetError
    from adiabat.core.errors import ConfigError as ConfigError
    from adiabat.core.errors import DataError as DataError
    from adiabat.core.errors import DivergedError as DivergedError
    from adiabat.core.errors import InUseError as InUseError
    from adiabat.core.errors import JobError as JobError
    from adiabat.core.errors import LinkError as LinkError
    from adiabat.core.errors import MissingDependencyError as MissingDependencyError
    from adiabat.core.errors import ModelError as ModelError
    from adiabat.core.errors import StoreError as StoreError
    from adiabat.models.model_names import load as load
    from adiabat.models.towers import DualEncoder as DualEncoder
    from adiabat.store.vector_store import Store as Store


def _modules() -> dict[str, str]:
    """Public name to the module that defines it."""
    block = next(
        node
        for node in ast.parse(pkgutil.get_data(__name__, "__init__.py") or b"").body
        if isinstance(node, ast.If)
    )
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in imports for name in node.names}


_MODULES = _modules()

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    """A public name, imported from its module on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
