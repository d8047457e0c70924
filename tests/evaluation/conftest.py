"""Stores for the tests of the tasks room."""

from tests.stats.conftest import make_store as make_store
