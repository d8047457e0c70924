"""Floating-point operations of training: by parameters and tokens, as budgets are told, and as a run really does them.

Reference: Ziarko et al. 2024.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

Lengths = Int[np.ndarray, " t"]


@dataclass(frozen=True, slots=True)
class PassedParameters:
    """Parameters of a tower without its table of tokens, by what training does with them.

    Attributes:
        forward: ``N_F``: all that a token passes through.
        backward: ``N_B``: those that the gradient passes back through.
        updated: ``N_U``: those whose own gradient is computed.
    """

    forward: int
    backward: int
    updated: int


def training_flops(parameters: PassedParameters, tokens: float) -> float:
    """``C = 2 N_F D + 2 N_B D + 2 N_U D``: a multiplication and an addition for each parameter, token and kind of pass.

    Args:
        parameters: ``N_F``, ``N_B`` and ``N_U`` above.
        tokens: ``D`` above, padding left out, >= 0.

    Returns:
        Operations; attention's scores, whose number grows with the square of the length, are left out.

    Reference:
        Kaplan et al. 2020, section 2.1; Ziarko et al. 2024, section 3.5.
    """
    return 2.0 * tokens * (parameters.forward + parameters.backward + parameters.updated)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step takes.

    Attributes:
        flops: By parameters and tokens (`training_flops`), as budgets are told.
        operations: As they are counted one by one: attention, padding, and what is computed a second time among them.
    """

    flops: float
    operations: float


@dataclass(frozen=True, slots=True)
class ByLength:
    """Operations of one text by its length L: ``per_text + per_token * L + per_pair * L^2``.

    Attributes:
        per_text: Of what is done once, such as a projection of the pooled embedding.
        per_token: Of dense layers.
        per_pair: Of attention, where each token looks at each.
    """

    per_text: int
    per_token: int
    per_pair: int

    def of(self, lengths: Lengths) -> float:
        """Operations of some texts.

        Args:
            lengths: Tokens of each, padding included where it is computed.

        Returns:
            Their sum.
        """
        exact = lengths.astype(np.float64)
        return float(self.per_text * len(exact) + self.per_token * exact.sum() + self.per_pair * np.square(exact).sum())


@dataclass(frozen=True, slots=True)
class TowerOperations:
    """What passes of a tower cost, multiplications and additions of matrix products counted one by one.

    Attributes:
        forward: Of one pass.
        again: Of what gradient caching computes a second time: all but frozen leading blocks.
        blocks: Of the blocks among these, which checkpointing computes once more.
        backward: Of the gradient, of inputs and of weights; nothing for what nobody asks for.
    """

    forward: ByLength
    again: ByLength
    blocks: ByLength
    backward: ByLength

    def of(self, lengths: Lengths, *, trained: bool, cached: bool, checkpointed: bool) -> float:
        """Operations of a batch.

        Args:
            lengths: Tokens of each text, padding included where it is computed.
            trained: Whether there is a gradient.
            cached: Whether a second pass computes it.
            checkpointed: Whether blocks keep only their input.

        Returns:
            Their sum.
        """
        parts = [self.forward]
        if trained:
            parts += [self.backward, *([self.again] if cached else []), *([self.blocks] if checkpointed else [])]
        return sum(part.of(lengths) for part in parts)
