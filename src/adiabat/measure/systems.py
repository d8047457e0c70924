"""The names under which `adiabat.tasks.systems` was known before."""

from adiabat.tasks.systems import System as System
from adiabat.tasks.systems import baseline_of as baseline_of
