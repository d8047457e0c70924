"""What source 001 found and used: its models, budgets, rates, and the lines of its frontier (mission B6, B7, B8).

Its figures are for Pythia on 200 million English pairs in batches of 1,024 at 75 tokens. They say little about other models, data and
batches: the loss of a softmax over a batch depends on how large the batch is.
"""

from dataclasses import dataclass
from pathlib import PurePath

from adiabat.plan.frontier import Line

PAPER = "Ziarko et al. 2024"
"""What reports call source 001: *Repurposing Language Models into Embedding Models: Finding the Compute-Optimal Recipe*."""


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model of the Pythia suite.

    Attributes:
        name: On the hub.
        layers: Blocks.
        hidden: Width of a hidden state.
        pretraining_rate: Highest learning rate of its pre-training.
    """

    name: str
    layers: int
    hidden: int
    pretraining_rate: float

    @property
    def parameters(self) -> int:
        """Without the tables of tokens: weights and biases of a block ``12 h^2 + 13 h``, and the last norm ``2 h``."""
        return self.layers * (12 * self.hidden**2 + 13 * self.hidden) + 2 * self.hidden


PYTHIA = (
    PublishedModel("EleutherAI/pythia-14m", 6, 128, 1e-3),
    PublishedModel("EleutherAI/pythia-31m", 6, 256, 1e-3),
    PublishedModel("EleutherAI/pythia-70m", 6, 512, 1e-3),
    PublishedModel("EleutherAI/pythia-160m", 12, 768, 6e-4),
    PublishedModel("EleutherAI/pythia-410m", 24, 1024, 3e-4),
    PublishedModel("EleutherAI/pythia-1b", 16, 2048, 3e-4),
    PublishedModel("EleutherAI/pythia-1.4b", 24, 2048, 2e-4),
    PublishedModel("EleutherAI/pythia-2.8b", 32, 2560, 1.6e-4),
)
"""Layers, widths and rates as in the configurations that the suite was trained with (Biderman et al. 2023, table 1, and its repository).

Source 001 says that a tenth of these rates lies between 1.2e-5 and 6e-5; of this table a tenth is 1.6e-5 to 1e-4."""

BATCH_SIZE, MAX_TOKENS = 1_024, 75
"""Of all its runs; source 001, section 4.1."""


def published_rate(name: str) -> float | None:
    """The highest learning rate that a model was pre-trained with.

    Returns:
        Of `PYTHIA`, by the last part of the name; None for others.
    """
    return next((one.pretraining_rate for one in PYTHIA if PurePath(one.name).name == PurePath(name).name), None)


BUDGETS = (1.5e15, 6e15, 2.4e16, 9.6e16, 3.8e17, 1.5e18)
"""In FLOP; source 001, section 4.1."""

FULL = Line(-0.21, 8.39)
LORA = Line(-0.22, 8.93)
"""Least loss by budget of full training and of LoRA, as printed in source 001, section 4.4."""

SWITCH = 9.06e16
"""Budget in FLOP from which LoRA is best; source 001, section 4.4. The printed lines, rounded to two decimals, meet at e^54 = 2.8e23."""
