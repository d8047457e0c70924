"""The names under which `adiabat.tasks.systems` was known before."""

from adiabat.tasks.systems import Role as Role
from adiabat.tasks.systems import Similarity as Similarity
from adiabat.tasks.systems import similarities_of as similarities_of
