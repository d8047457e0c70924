"""adiabat: tune, train, plan, distill and measure dual-encoder text-embedding models.

Every verb of the command line is a function here; nothing else is public but the settings in `adiabat.config`. A name is loaded when it is
first used, so that importing the package loads nothing heavy.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from adiabat.core.former_names import install

if TYPE_CHECKING:
    from adiabat.api.ablate_verb import distill_ablate as distill_ablate
    from adiabat.api.compare_runs_verb import compare_runs as compare_runs
    from adiabat.api.compare_verb import compare as compare
    from adiabat.api.data_verb import make as make
    from adiabat.api.embed_verb import embed as embed
    from adiabat.api.evaluate_verb import evaluate as evaluate
    from adiabat.api.inspect_verb import inspect as inspect
    from adiabat.api.mine_verb import mine as mine
    from adiabat.api.plan_verb import plan as plan
    from adiabat.api.safe_rate_verb import safe_rate as safe_rate
    from adiabat.api.scaling_verb import scaling as scaling
    from adiabat.api.search_verb import search as search
    from adiabat.api.space_verb import space as space
    from adiabat.api.suite_verb import evaluate_suite as evaluate_suite
    from adiabat.api.sweep_verb import sweep as sweep
    from adiabat.api.train_verb import estimate as estimate
    from adiabat.api.train_verb import train as train
    from adiabat.api.tune_verb import tune as tune
    from adiabat.core.errors import AdiabatError as AdiabatError
    from adiabat.distillation.static_jobs import distill_fit as distill_fit
    from adiabat.distillation.static_jobs import distill_multilingual as distill_multilingual
    from adiabat.distillation.static_jobs import distill_pair as distill_pair
    from adiabat.distillation.static_jobs import distill_static as distill_static
    from adiabat.models.model_names import Model as Model
    from adiabat.models.model_names import load as load
    from adiabat.models.towers import DualEncoder as DualEncoder
    from adiabat.store.vector_store import Store as Store

_MODULES = {
    "AdiabatError": "adiabat.core.errors",
    "DualEncoder": "adiabat.models.towers",
    "Model": "adiabat.models.model_names",
    "Store": "adiabat.store.vector_store",
    "compare": "adiabat.api.compare_verb",
    "compare_runs": "adiabat.api.compare_runs_verb",
    "distill_ablate": "adiabat.api.ablate_verb",
    "distill_fit": "adiabat.distillation.static_jobs",
    "distill_multilingual": "adiabat.distillation.static_jobs",
    "distill_pair": "adiabat.distillation.static_jobs",
    "distill_static": "adiabat.distillation.static_jobs",
    "embed": "adiabat.api.embed_verb",
    "estimate": "adiabat.api.train_verb",
    "evaluate": "adiabat.api.evaluate_verb",
    "evaluate_suite": "adiabat.api.suite_verb",
    "inspect": "adiabat.api.inspect_verb",
    "load": "adiabat.models.model_names",
    "make": "adiabat.api.data_verb",
    "mine": "adiabat.api.mine_verb",
    "plan": "adiabat.api.plan_verb",
    "safe_rate": "adiabat.api.safe_rate_verb",
    "scaling": "adiabat.api.scaling_verb",
    "search": "adiabat.api.search_verb",
    "space": "adiabat.api.space_verb",
    "sweep": "adiabat.api.sweep_verb",
    "train": "adiabat.api.train_verb",
    "tune": "adiabat.api.tune_verb",
}

__all__ = ["__version__", *_MODULES]

try:
    __version__ = version("adiabat")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"

install()


def __getattr__(name: str) -> object:
    """A public name, imported from its module when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
