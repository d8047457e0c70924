"""The checker of annotations that conftest.py puts on every function of the package."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

# Functions are decorated one by one, and beartype knows what Self is only where it decorates the whole class.
checked = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any})))
