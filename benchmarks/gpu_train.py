"""Model FLOP utilisation of training both towers with gradient caching: the share of the device's bf16 peak
used by the model.

``utilisation = C / (seconds x peak)`` with ``C = 2 (N_F + N_B + N_U) D`` over the tokens of a step, without
padding, attention scores and
the second forward pass of caching: repeated work does not count twice.

    python benchmarks/gpu_train.py [--model demo] [--batch 4096] [--chunk-tokens 65536] [--steps 10]
    [--compile] [--no-cache]
        [--memory KEY=VALUE ...] [--row KEY]     settings of `memory`; the row of `gpu_rows.py` to append
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from gpu_rows import PEAKS, SMALL, append, peak

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.data.corpora import read_corpus
from adiabat.datasets.bundled import DEMO_CORPUS
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.train import prepared
from adiabat.models.device import device_name, device_of
from adiabat.scaling_laws.flops import training_flops
from adiabat.training.distributed import Processes
from adiabat.training.flop_count import passed_parameters


def main() -> None:
    """Take steps, and print the share of the peak."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--chunk-tokens", type=int, default=65_536)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--memory", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--row", metavar="KEY")
    parser.add_argument(
        "--peak", type=float, help="bf16 operations per second, for a device without a built-in figure"
    )
    options = parser.parse_args()
    device = device_of(options.device)
    if SMALL:
        options.batch, options.chunk_tokens, options.steps = 8, 2048, 2
    most = options.peak or peak()
    if most is None:
        parser.error(f"--peak must be given for {device_name(device)}, which is none of {', '.join(PEAKS)}")
    with tempfile.TemporaryDirectory() as folder:
        objective = objective_of(options, Path(folder))
        seconds = step_seconds(objective, options.steps)
    tokens = {
        side: sum(objective.tokens_of(step)[side] for step in range(options.steps)) / options.steps
        for side in objective.tables
    }
    flops = sum(
        training_flops(passed_parameters(objective.towers.tower(side)), count)
        for side, count in tokens.items()
    )
    shares = [100 * flops / (one * most) for one in seconds]
    rate = options.batch / statistics.median(seconds)
    print(
        f"{device_name(device)}: {rate:,.0f} pairs/s, {sum(tokens.values()) / options.batch:.0f} "
        f"tokens a pair, batch {options.batch:,}"
    )
    share = statistics.median(shares)
    print(f"gpu_train: {share:.1f} % of the bf16 peak ({min(shares):.1f} to {max(shares):.1f})")
    if options.row:
        append(options.row, share, f"{share:.1f} % ({rate:,.0f} pairs/s)")


def objective_of(options: argparse.Namespace, folder: Path) -> PairContrast:
    """Pairs of the demo's papers: the first sentence of each, and the whole of it, as often as a batch
    needs.
    """
    texts = [document.text for document in read_corpus(DEMO_CORPUS)]
    rows = [
        {"query": f"{text.partition('. ')[0]} {number}", "positive": f"{text} {number}"}
        for number in range(4)
        for text in texts
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    memory: dict[str, object] = {"cached": not options.no_cache, "chunk_tokens": options.chunk_tokens}
    for setting in options.memory:
        key, value = setting.split("=", 1)
        memory[key] = int(value) if value.isdigit() else value
    tables = {
        "job": {"model": options.model, "data": str(folder / "pairs.jsonl")},
        "train": {"loss": {"negatives_per_query": 0}, "batch_size": options.batch, "dropout": False},
        "memory": memory,
        "run": {
            "precision": "fp32" if SMALL else "bf16",
            "compile": options.compile,
            "device": options.device,
        },
    }
    settings = checked(TrainSettings, tables)
    group = Processes(device=device_of(options.device))
    objective, _ = prepared(lambda name, section: adiabat.load(name, settings=section), settings, group)
    return objective


def step_seconds(objective: PairContrast, steps: int) -> list[float]:
    """Seconds of forward and backward, step by step, after two that warm up."""
    seconds = []
    with objective.passing():
        for step in (0, 1, *range(steps)):
            started = time.perf_counter()
            torch.autograd.backward(objective.loss(step))
            objective.module.zero_grad(set_to_none=True)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
    return seconds[2:]


if __name__ == "__main__":
    main()
