"""What tests of models share."""

from tests.compiled import graphs as graphs
