"""The blocks of a backbone, and their compilation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

COMPILER = "inductor"
"""Torch's compiler of `compile_blocks`."""

RECOMPILES = 64
"""Maximum number of graphs that torch keeps of one function; beyond its default of 8 it would stop compiling.
A class of blocks makes one for each tower, for passes with and without gradients, and for batches of one
text."""


def blocks_of(backbone: nn.Module) -> list[nn.Module]:
    """The blocks of a backbone: the list of modules with most parameters; the outermost of several with the
    same parameters.

    Returns:
        The blocks in order; empty if the backbone has no list of modules.
    """
    # No common name: transformers has layer, layers, h, block; the list with most parameters is the stack in
    # every family of the tests.
    lists = [module for module in backbone.modules() if isinstance(module, nn.ModuleList) and len(module)]
    return list(max(lists, key=_size, default=[]))


def _size(module: nn.Module) -> int:
    """Number of its parameters."""
    return sum(weights.numel() for weights in module.parameters())


def compile_blocks(backbone: nn.Module) -> None:
    """Compile each block once, for batches of any shape.

    Blocks of one class share a graph, so a backbone of many blocks compiles as fast as one of few.
    """
    for block in blocks_of(backbone):
        # In place of the class's method, so that recording and replaying a block go through it too.
        vars(block)["forward"] = torch.compile(block.forward, dynamic=True, backend=COMPILER)


@contextmanager
def enough_graphs() -> Iterator[None]:
    """A context in which torch keeps compiling."""
    # Loading the compiler takes a second, which uncompiled runs should not wait for.
    import torch._dynamo

    with torch._dynamo.config.patch(recompile_limit=RECOMPILES):
        yield
