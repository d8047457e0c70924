"""Shape annotations of the package, checked at each call.

Functions without a shape are left to the checker of types: checking these too took a third of the time of
tests that train.
"""

import os
from collections.abc import Callable
from typing import Any, Self, get_args

import jaxtyping
from beartype import BeartypeConf, FrozenDict, beartype

SHAPES = "ADIABAT_SHAPES" in os.environ
"""Whether this run of the tests checks shapes, which takes a third longer."""

OFTEN = frozenset(
    [
        "adiabat.scaling_laws.laws.columns_of",
        *(f"adiabat.scaling_laws.law_search.Problems.{name}" for name in ("objective", "split", "_logs")),
    ]
)
"""What a search for a law calls ten thousand times, and whose values and gradient have tests of their own."""

# Functions are decorated one by one, and beartype knows what Self is only where it decorates the whole class.
checked = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any})))

_jaxtyped = jaxtyping.jaxtyped


def check_shapes(package: str) -> None:
    """Check what is imported from now on."""
    # The hook decorates every function and class, by this name.
    jaxtyping.jaxtyped = _jaxtyped_if_shaped  # type: ignore[assignment]
    jaxtyping.install_import_hook(package, "tests.checking.checked")


def _jaxtyped_if_shaped(*, typechecker: Any) -> Callable[[Any], Any]:
    decorate = _jaxtyped(typechecker=typechecker)

    def decorated(thing: Any) -> Any:
        function, name = (
            thing.__init__ if isinstance(thing, type) else thing,
            f"{thing.__module__}.{thing.__qualname__}",
        )
        return decorate(thing) if name not in OFTEN and _has_shapes(function) else thing

    return decorated


def _has_shapes(function: Callable[..., Any]) -> bool:
    """Whether an argument, or what comes back, has the annotation of a shape."""
    return any(map(_is_shape, getattr(function, "__annotations__", {}).values()))


def _is_shape(annotation: object) -> bool:
    # What a function takes is a list, in the annotation of one.
    parts = annotation if isinstance(annotation, list | tuple) else get_args(annotation)
    return (isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray)) or any(
        map(_is_shape, parts)
    )
