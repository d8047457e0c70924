"""Errors by the facts that their messages hold."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

Facts = tuple[str, ...]


@contextmanager
def refused(error: type[Exception] | tuple[type[Exception], ...], *facts: str) -> Iterator[None]:
    """What runs within raises this error, and its message holds all facts."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    # The error knows this frame, and would keep all that its own frames hold until garbage is collected.
    del caught
    require_facts(message, *facts)


def require_facts(message: str, *facts: str) -> None:
    assert facts
    assert [fact for fact in facts if fact not in message] == [], message


@contextmanager
def one_line(error: type[Exception], *facts: str) -> Iterator[None]:
    """`refused`, with a message of one line."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    del caught
    require_facts(message, *facts)
    assert "\n" not in message, message
