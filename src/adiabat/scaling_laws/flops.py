"""Floating-point operations of training: by parameters and tokens, as in budgets, and counted product by
product.

Reference: Ziarko et al. 2024.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

Lengths = Int[np.ndarray, " t"]


@dataclass(frozen=True, slots=True)
class PassedParameters:
    """Parameters of a tower without its table of tokens, by their use in training.

    Attributes:
        forward: ``N_F``: all parameters that a token passes.
        backward: ``N_B``: those that the gradient passes.
        updated: ``N_U``: those with a gradient of their own.
    """

    forward: int
    backward: int
    updated: int


def training_flops(parameters: PassedParameters, tokens: float) -> float:
    """``C = 2 N_F D + 2 N_B D + 2 N_U D``: a multiplication and an addition for each parameter, token and
    kind of pass.

    Args:
        parameters: ``N_F``, ``N_B`` and ``N_U`` above.
        tokens: ``D`` above, without padding, >= 0.

    Returns:
        Operations, without the scores of attention, whose number grows with the square of the length.

    Reference:
        Kaplan et al. 2020, section 2.1; Ziarko et al. 2024, section 3.5.
    """
    return 2.0 * tokens * (parameters.forward + parameters.backward + parameters.updated)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a step: `training_flops`, as in budgets, and all operations, with attention, padding and
    recomputation.
    """

    flops: float
    operations: float


@dataclass(frozen=True, slots=True)
class ByLength:
    """Operations of one text by its length L: ``per_text + per_token * L + per_pair * L^2``.

    Attributes:
        per_text: Of layers applied once, such as a projection of the pooled embedding.
        per_token: Of dense layers.
        per_pair: Of attention, for each pair of tokens.
    """

    per_text: int
    per_token: int
    per_pair: int

    def of(self, lengths: Lengths) -> float:
        """Operations of all texts; lengths include padding where it is computed."""
        exact = lengths.astype(np.float64)
        return float(
            self.per_text * len(exact) + self.per_token * exact.sum() + self.per_pair * np.square(exact).sum()
        )


@dataclass(frozen=True, slots=True)
class TowerOperations:
    """Operations of a tower's passes: multiplications and additions of its matrix products.

    Attributes:
        forward: One pass.
        again: The second pass of gradient caching: all but frozen leading blocks.
        blocks: The blocks among these, which checkpointing computes once more.
        backward: Gradients of inputs and of weights, where they are needed.
    """

    forward: ByLength
    again: ByLength
    blocks: ByLength
    backward: ByLength

    def of(self, lengths: Lengths, *, trained: bool, cached: bool, checkpointed: bool) -> float:
        """Operations of a batch, padding included where it is computed; a multiplication and an addition
        count as two.
        """
        passes = [self.forward]
        if trained:
            passes += [
                self.backward,
                *([self.again] if cached else []),
                *([self.blocks] if checkpointed else []),
            ]
        return sum(operations.of(lengths) for operations in passes)
