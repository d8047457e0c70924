"""Floating-point operations of training, by parameters and tokens (mission B4)."""

from dataclasses import dataclass


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
        Kaplan et al. 2020, section 2.1; source 001, section 3.5; mission B4.
    """
    return 2.0 * tokens * (parameters.forward + parameters.backward + parameters.updated)
