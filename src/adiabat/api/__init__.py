"""adiabat from Python: the verbs of the command line as functions.

A MODEL is a hub name, a directory, the directory of a job, ``demo`` (the embedded model), or a `DualEncoder` already loaded.
"""

from adiabat.api.ablate_verb import distil_ablate as distil_ablate
from adiabat.api.comparing import compare as compare
from adiabat.api.datasets import MAKERS as MAKERS
from adiabat.api.datasets import inspect as inspect
from adiabat.api.datasets import make as make
from adiabat.api.datasets import maker_of as maker_of
from adiabat.api.datasets import mine as mine
from adiabat.api.embedding import embed as embed
from adiabat.api.measuring import evaluate as evaluate
from adiabat.api.measuring import search as search
from adiabat.api.planning import plan as plan
from adiabat.api.planning import sweep as sweep
from adiabat.api.space_analysis import space as space
from adiabat.api.studies import safe_rate as safe_rate
from adiabat.api.studies import study as study
from adiabat.api.suites import compare_runs as compare_runs
from adiabat.api.suites import evaluate_suite as evaluate_suite
from adiabat.api.training import estimate as estimate
from adiabat.api.training import train as train
from adiabat.api.training import tune as tune
from adiabat.distillation.static_jobs import distil_fit as distil_fit
from adiabat.distillation.static_jobs import distil_multilingual as distil_multilingual
from adiabat.distillation.static_jobs import distil_pair as distil_pair
from adiabat.distillation.static_jobs import distil_static as distil_static
from adiabat.models.model_names import Model as Model
from adiabat.models.model_names import load as load
