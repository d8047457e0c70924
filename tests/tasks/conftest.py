"""Stores for the tests of the tasks room."""

from tests.measure.conftest import make_store as make_store
