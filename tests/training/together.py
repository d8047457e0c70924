"""What test_distributed.py has two processes do, and does in one; the processes are started here, as torchrun
starts them.

python -m tests.training.together FOLDER
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from adiabat.core.errors import ConfigError, JobError
from adiabat.losses.embedded_pairs import Guide, Pairs
from adiabat.losses.in_batch import in_batch_softmax, pair, samtone
from adiabat.losses.log_denominator import LearnedTemperature
from adiabat.models.bulk import TokenTable
from adiabat.training import distributed
from adiabat.training.distributed import Processes, processes
from adiabat.training.gradient_cache import Chunking
from adiabat.training.optimizers import decay_groups, make_optimizer
from adiabat.training.passes import side_passes
from tests.tiny import tiny_encoder

Found = dict[str, Tensor]
Loss = Callable[..., Tensor]
Case = Callable[[Processes], Found]

COUNT, PAIRS, SHARED, OWN, INPUTS, WIDTH = 2, 6, 4, 2, 5, 8
TIMEOUT = timedelta(minutes=3)

LOSSES: dict[str, Loss] = {
    "softmax": in_batch_softmax,
    "softmax both ways, with a margin": partial(in_batch_softmax, symmetric=True, margin=0.3),
    "softmax in tiles": partial(in_batch_softmax, tile=2),
    "samtone query": samtone,
    "samtone document": partial(samtone, side="document"),
    "samtone both": partial(samtone, side="both"),
    "pair": partial(pair, symmetric=True),
}


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Towers(nn.Module):
    """A linear layer for each side, and a learned temperature; `idle` has no part in any loss."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.document, self.idle = (nn.Linear(INPUTS, WIDTH) for _ in range(3))
        self.temperature = LearnedTemperature(0.2)
        self.double()
        for number, weights in enumerate(self.parameters()):
            if weights.dim():
                weights.data = random(*weights.shape, seed=number)


def joined(towers: Towers, together: Processes, *, hard: bool, keyed: bool) -> Pairs:
    """The pairs of one batch: what this process embeds of it, and what it is told of the rest."""
    rows, documents = together.share(PAIRS), random(PAIRS, INPUTS, seed=11)
    query, positive = towers.query(random(PAIRS, INPUTS, seed=10)[rows]), towers.document(documents[rows])
    shared = towers.document(random(SHARED, INPUTS, seed=12)[together.share(SHARED)]) if hard else None
    own = towers.document(random(PAIRS, OWN, INPUTS, seed=13)[rows]) if hard else None
    return Pairs(
        together.gather(query),
        together.gather(positive),
        shared=None if shared is None else together.gather(shared),
        own=None if own is None else together.spread(own),
        rows=rows,
        # The last pair, which the second process embeds, asks what the first one asks.
        query_keys=torch.tensor([0, 1, 2, 3, 4, 0]) if keyed else None,
        positive_keys=together.gather_numbers(torch.tensor([7, 8, 9, 10, 11, 12])[rows]) if keyed else None,
    )


def guided(pairs: Pairs) -> Pairs:
    """Judged by the towers themselves, without gradient."""
    opinion = Guide(
        *(rows.detach() for rows in (pairs.query, pairs.positive, pairs.shared, pairs.own)), margin=0.1
    )
    return replace(pairs, guide=opinion)


def step(
    together: Processes,
    *,
    loss: Loss,
    hard: bool = True,
    keyed: bool = True,
    guide: bool = False,
    widths: tuple[int, ...] = (WIDTH,),
) -> Found:
    """Loss and gradients of one step."""
    towers = Towers()
    pairs = joined(towers, together, hard=hard, keyed=keyed)
    cuts = [pairs.first_numbers(width).unit() for width in widths]
    if guide:
        cuts = [guided(cut) for cut in cuts]
    value = torch.stack([loss(cut, temperature=towers.temperature()) for cut in cuts]).mean()
    value.backward()  # type: ignore[no-untyped-call]
    return averaged(together, value, towers)


def averaged(together: Processes, value: Tensor, module: nn.Module) -> Found:
    together.average_gradients(module.parameters())
    found = {name: weights.grad for name, weights in module.named_parameters() if weights.grad is not None}
    return {"loss": together.mean(value.detach()), **found}


TEXTS = [
    "a",
    "two words",
    "three short words",
    "the longest of all the texts in this batch",
    "",
    "again two",
    "yet another",
    "and more",
]


def encoder(together: Processes, *, chunking: Chunking | None) -> Found:
    """Loss and gradients of a transformer that embeds both sides of real texts."""
    tower = tiny_encoder().eval()
    table = TokenTable.of(tower, TEXTS, side="query")
    rows = together.share(4)
    with side_passes(tower, precision="fp32", chunking=chunking) as passes:
        query, positive = (
            together.gather(passes.embed(table, np.arange(first, first + 4)[rows])) for first in (0, 4)
        )
        value = in_batch_softmax(Pairs(query, positive, rows=rows).unit(), temperature=0.1, symmetric=True)
        value.backward()  # type: ignore[no-untyped-call]
    return averaged(together, value, tower)


def training(together: Processes) -> Found:
    """The weights after four steps with clipping."""
    towers = Towers()
    optimizer = make_optimizer("adamw", decay_groups(towers), learning_rate=0.01, weight_decay=0.1)
    for _ in range(4):
        pairs = joined(towers, together, hard=True, keyed=True).unit()
        samtone(pairs, temperature=towers.temperature()).backward()  # type: ignore[no-untyped-call]
        together.average_gradients(towers.parameters())
        norm = nn.utils.clip_grad_norm_(towers.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        towers.temperature.clamp_()
    return {"norm": norm, **{name: weights.detach().clone() for name, weights in towers.named_parameters()}}


CASES: dict[str, Case] = {
    **{name: partial(step, loss=loss) for name, loss in LOSSES.items()},
    "softmax of pairs alone": partial(step, loss=in_batch_softmax, hard=False, keyed=False),
    "softmax with a guide": partial(step, loss=in_batch_softmax, guide=True),
    "truncated embeddings": partial(step, loss=partial(samtone, side="both"), widths=(WIDTH, 4, 2)),
    "transformer": partial(encoder, chunking=None),
    "transformer in cached chunks": partial(encoder, chunking=Chunking(12, cached=True)),
    "four steps": training,
}


def exchanges(together: Processes) -> Found:
    """Each exchange by itself, on numbers that tell the ranks apart."""
    rank = together.rank
    brought = torch.arange(3.0 * (rank + 1)).view(-1, 3) + 10 * rank
    none = torch.zeros(0, 2) if rank else torch.tensor([[1.0, 2.0]], requires_grad=True)
    unlike = together.gather(none)
    (unlike * (rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
    leaf = torch.full((2, 1), float(rank), requires_grad=True)
    (together.gather(leaf) * torch.tensor([[1.0], [2.0], [3.0], [4.0]]) * (rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    weights = [torch.full((2,), 5.0 * rank), torch.full((3, 2), float(rank)).T]
    together.broadcast(weights)
    return {
        "uneven rows": together.gather(brought),
        "rows of one process alone": unlike.detach(),
        "their gradient": torch.zeros(0) if none.grad is None else none.grad,
        "no rows": together.gather(torch.zeros(0, 3)),
        "summed gradient": leaf.grad,
        "numbers": together.gather_numbers(torch.arange(rank, 3)),
        "spread": together.spread(torch.ones(2, 1) * (rank + 1)),
        "mean": together.mean(torch.tensor(1.0 + rank)),
        "any": torch.tensor([together.any(rank == 1), together.any(True), together.any(False)]),
        **{f"broadcast {number}": tensor for number, tensor in enumerate(weights)},
    }


def lopsided(together: Processes) -> Found:
    """Averages where processes have gradients of different weights, in several buckets and dtypes."""
    weights = [
        nn.Parameter(torch.zeros(5, dtype=torch.float64 if number == 2 else torch.float32))
        for number in range(6)
    ]
    present = {0: (0, 1), 1: (0,), 2: (1,), 4: (0, 1), 5: (0, 1)}
    for number, ranks in present.items():
        if together.rank in ranks:
            weights[number].grad = torch.full_like(weights[number], 1.0 + number + 10 * together.rank)
    weights[5].requires_grad_(False)
    together.average_gradients([*weights, weights[0]])
    assert weights[3].grad is None
    return {str(number): weights[number].grad for number in present}  # type: ignore[misc]


def settings(together: Processes) -> dict[str, object]:
    """What a process knows of itself, and how long it waits for others."""
    with processes(torch.device("cpu")) as inner:
        same = inner == together
    together.any(False)
    try:
        together.share(5)
    except ConfigError as fault:
        refused = str(fault)
    options = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).options
    itself = (together.rank, together.count, together.is_main, together.device, together.share(6))
    return {"itself": itself, "inner": same, "refused": refused, "timeout": options._timeout}


def lost(together: Processes) -> str:
    """What an exchange says."""
    try:
        together.any(False)
    except JobError as fault:
        return str(fault)
    return "heard"


def silence(folder: Path) -> str:
    """The second process waits for something else until the first one has given it up."""
    with processes(torch.device("cpu")) as together:
        together.any(False)
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=0.3))
        if not together.is_main:
            return (folder / "pipe").read_text()
        said = lost(together)
        (folder / "pipe").write_text("given up")
        return said


def death() -> str:
    """The second process dies, and the first one, which the launcher asks to stop as well, notices before it
    does.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with processes(torch.device("cpu")) as together:
        if not together.is_main:
            together.any(False)
            os._exit(3)
        # Heard, as the other one was there still; or not, if it was gone before its answer was read.
        lost(together)
        return lost(together)


def work(folder: Path) -> None:
    """Everything, in one of the processes."""
    torch.set_num_threads(1)
    distributed.BUCKET_BYTES = 40
    found: dict[str, object] = {}
    with processes(torch.device("cpu"), timeout=TIMEOUT) as together:
        found = {name: case(together) for name, case in CASES.items()}
        found |= {
            "exchanges": exchanges(together),
            "lopsided": lopsided(together),
            "settings": settings(together),
        }
        rank = together.rank
    found["silence"] = silence(folder)
    torch.save(found, folder / f"{rank}.pt")
    found["death"] = death()
    torch.save(found, folder / f"{rank}.pt")
    # To return would be to wait for the launcher, which waits for the signal that was ignored to end this
    # process.
    os._exit(0)


def main() -> None:
    """Start the processes; what they import is imported once."""
    folder = Path(sys.argv[1])
    os.mkfifo(folder / "pipe")
    config = LaunchConfig(
        1,
        1,
        COUNT,
        run_id="test",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        start_method="fork",
        max_restarts=0,
    )
    try:
        elastic_launch(config, work)(folder)
    except ChildFailedError as fault:
        print({rank: failure.exitcode for rank, failure in fault.failures.items()})


if __name__ == "__main__":
    main()
