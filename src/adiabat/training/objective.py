"""What the loop asks of whatever is to be minimised."""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from adiabat.training.limits import Validation


@runtime_checkable
class Objective(Protocol):
    """What a run minimises.

    A step must follow from the weights, its number and torch's random numbers (which the loop seeds anew for each step) alone, so that a
    resumed run repeats it.
    """

    @property
    def module(self) -> nn.Module:
        """Holds the parameters; those that require gradients are trained."""

    def loss(self, step: int) -> Tensor:
        """The loss of one step."""

    def validate(self) -> Validation:
        """Loss and errors on data that is not trained on."""

    def batch_ids(self, step: int) -> list[str]:
        """What a step learns from, for the message when it fails."""
