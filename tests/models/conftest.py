"""What tests of models share."""

from tests.compiled import graphs as graphs
from tests.training.conftest import two_threads as two_threads
