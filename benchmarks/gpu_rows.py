"""The rows of one GPU: claims, figures of before and of prototypes, targets, and what a run of
`scripts/gpu_checks.sh` measured.

    python benchmarks/gpu_rows.py device                          # device, versions, and what is missing
    python benchmarks/gpu_rows.py golden OUTPUT EXIT_CODE  # rows of what `scripts/golden.py check` printed
    python benchmarks/gpu_rows.py seconds KEY SECONDS EXIT_CODE   # the row of a command
    python benchmarks/gpu_rows.py table [--markdown]

Rows are appended to the file `GPU_ROWS`, if it is set, as they come: a run that is cut keeps what it has.
Without a GPU every script measures a small case, which says that it runs, and nothing else.
"""

import argparse
import json
import os
import re
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

SMALL = not torch.cuda.is_available()
"""Whether sizes are those of a trial."""

PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""Dense bf16 operations per second that the makers state."""

BEFORE = (
    "one NVIDIA H200 with 16 CPU cores, torch 2.11.0+cu130, transformers "
    "5.17.0, sentence-transformers 6.0.1, 2026-11-27"
)
"""Where the columns before and prototype were measured; golden jobs and cosines before on an H100 with the
same versions."""

NOT_MEASURED = "not measured: no device was at hand"


@dataclass(frozen=True, slots=True)
class Row:
    """A claim with its figures in words; `at_least` or `at_most` is the target as a number, if it has one."""

    claim: str
    script: str
    before: str
    prototype: str
    target: str = "none"
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool | None:
        """Whether a value reaches the target; None without one."""
        if self.at_least is not None:
            return value >= self.at_least
        return None if self.at_most is None else value <= self.at_most


ENCODE, TUNE, TRAIN, SEARCH = (
    f"`benchmarks/gpu_{name}.py`" for name in ("encode", "tune", "train", "search")
)
CHECKS, NONE, OF_THE_PEAK = "`scripts/gpu_checks.sh`", "-", "share of the bf16 peak"

ROWS: Mapping[str, Row] = {
    "golden resumed": Row(
        "six kinds of tuning and training, interrupted and resumed: weights and "
        "numbers of the uninterrupted run, bit for bit",
        "`scripts/golden.py`",
        "equal",
        NONE,
        "equal",
        at_least=1,
    ),
    "golden cpu": Row(
        "the same jobs: weights and numbers of the CPU",
        "`scripts/golden.py`",
        "to 1 %",
        NONE,
        "to 1 %",
        at_least=1,
    ),
    "equal ranks": Row(
        "hits, scores, ties and counts of an exact search, GPU against CPU, "
        "three similarities, with duplicates",
        SEARCH,
        "the CPU scored",
        NONE,
        "equal",
        at_least=1,
    ),
    "cosine": Row(
        "packed bf16 vectors against float32 on the CPU, minimum cosine",
        ENCODE,
        "0.99997",
        "1.0000",
        ">= 0.9999",
        at_least=0.9999,
    ),
    "encode minilm": Row(
        "encoding MiniLM from texts, documents/s", ENCODE, "3,452", "25,180", ">= 20,000", at_least=20_000
    ),
    "encode minilm, compiled": Row(
        "the same with compiled blocks (`run.compile`)",
        ENCODE,
        NONE,
        "72,190 (passes only); 25,180 from texts",
    ),
    "encode minilm, peer": Row(
        "the same as a multiple of sentence-transformers as it comes (float32, batch 32)",
        ENCODE,
        "2.0",
        "14.6",
        ">= 10",
        10,
    ),
    "encode minilm, best peer": Row(
        "the same as a multiple of its best: bf16 weights, the better of batches 128 and 512",
        ENCODE,
        "1.5",
        "10.8",
        ">= 8",
        8,
    ),
    "encode minilm, unpadded peer": Row(
        "the same as a multiple of its unpadded FlashAttention path",
        ENCODE,
        "not measured: no flash-attn",
        "not measured: no flash-attn",
    ),
    "encode large": Row(
        "encoding BERT-large's shape (random weights), documents/s",
        ENCODE,
        "2,027",
        "4,249; compiled 5,103 (passes only)",
        ">= 4,000",
        4_000,
    ),
    "encode large, share": Row(
        f"the same, {OF_THE_PEAK}", ENCODE, "17 %", "35 %; compiled 42 % (passes only)", ">= 35 %", 35
    ),
    "encode large, compiled": Row(
        "documents/s with compiled blocks (`run.compile`)", ENCODE, NONE, "5,103 (passes only)"
    ),
    "encode large, peer": Row(
        "the same as a multiple of sentence-transformers as it comes", ENCODE, "6.7", "14 (passes only)"
    ),
    "encode large, best peer": Row("the same as a multiple of its best", ENCODE, "1.0", "2.1 (passes only)"),
    "encode large, unpadded peer": Row(
        "the same as a multiple of its unpadded FlashAttention path",
        ENCODE,
        "not measured: no flash-attn",
        "not measured: no flash-attn",
    ),
    "encode profile": Row(
        "one packed batch of MiniLM from texts: share of wall time in which kernels run",
        ENCODE,
        NONE,
        "about 46 %: 25,180 of 54,270 documents/s of passes alone",
    ),
    "tune fp32": Row(
        "tuning, batch 14, listed negatives, float32, steps/s", TUNE, "49", "311", ">= 250", 250
    ),
    "tune equal": Row(
        "recorded steps: equal bit for bit in a second run; difference of the "
        "weights from those of eager steps after 30",
        TUNE,
        NONE,
        "0 of the change's norm in float32, 2.7 % in bf16",
        "equal",
        at_least=1,
    ),
    "tune bf16": Row("the same in bf16", TUNE, "27; 44 without cuDNN's attention", "479"),
    "tune hardest": Row(
        "the same in float32 with the hardest of 100,000 documents", TUNE, NONE, NONE, ">= 150", 150
    ),
    "tune 35,000": Row(
        "35,000 steps with their validations, extrapolated, seconds",
        TUNE,
        "714 without validations",
        "112 without validations",
        "<= 150",
        at_most=150,
    ),
    "tune profile": Row(
        "tuning steps with listed negatives: share of wall time in which kernels run",
        TUNE,
        NONE,
        "not measured: the step is one captured graph",
    ),
    "process embed": Row(
        "`embed` of 5,600 documents as a process, seconds", CHECKS, "19.7", NONE, "<= 9", at_most=9
    ),
    "process tune": Row(
        "`tune`, 300 steps with the hardest negatives, as a process, seconds",
        CHECKS,
        "45",
        NONE,
        "<= 12",
        at_most=12,
    ),
    "process evaluate": Row(
        "`evaluate` with one retention set as a process, seconds", CHECKS, "20.7", NONE, "<= 10", at_most=10
    ),
    "process advise": Row("`advise` as a process, seconds", CHECKS, "38.5", NONE, "<= 15", at_most=15),
    "process budget": Row(
        "`tune --budget-time 1min` as a process, seconds", CHECKS, "83.6", NONE, "<= 60", at_most=60
    ),
    "train minilm": Row(
        f"training both towers, MiniLM, batch 4,096, gradient caching, {OF_THE_PEAK}",
        TRAIN,
        "2.0 %",
        "10.0 to 15.5 %",
        ">= 10 %",
        10,
    ),
    "train large": Row(
        f"the same, BERT-large's shape, batch 256, {OF_THE_PEAK}",
        TRAIN,
        "10.3 %",
        "24 to 30 %",
        ">= 25 %",
        25,
    ),
    "train large, kept": Row(
        "the same where the graphs of all chunks are kept", TRAIN, NONE, "32 to 38 %", ">= 32 %", 32
    ),
    "search 1": Row(
        "exact search, 1,000,000 x 384 in float16, top 10 of one query, vectors on the GPU, milliseconds",
        SEARCH,
        "the CPU scored",
        "0.30 (quick product only)",
    ),
    "search 64": Row("the same, 64 queries", SEARCH, "the CPU scored", "0.82 (quick product only)"),
}

USED_BY = {
    "bm25s": "advise",
    "datasets": "evaluate, golden jobs of stores and suites",
    "ir-measures": "evaluate, advise",
    "skeletoken": "distill",
    "matplotlib": "pages with figures",
    "peft": "golden job tune-lora",
    "sentence-transformers": "the peer's rows",
}


def peak() -> float | None:
    """Dense bf16 operations per second of this GPU, if it is one of those above; on a CPU that of an H100, so
    that a trial has a figure.
    """
    name = "H100" if SMALL else torch.cuda.get_device_name()
    return next((operations for device, operations in PEAKS.items() if device in name), None)


def append(key: str, value: float, words: str) -> None:
    """Keep one row, and show it."""
    if key not in ROWS:
        raise KeyError(key)
    if file := os.environ.get("GPU_ROWS"):
        with Path(file).open("a", encoding="utf-8") as rows:
            rows.write(json.dumps({"key": key, "value": value, "words": words}) + "\n")
    print(f"{key}: {words} (target {ROWS[key].target})", flush=True)


def append_failure(key: str, reason: str) -> None:
    """Keep the reason why a row was not measured; it is no failure of its own."""
    append(key, float("nan"), reason)


def measured(file: Path) -> dict[str, dict[str, Any]]:
    """Rows of a run by key; of two, the later one."""
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: row for row in rows}


def now_of(key: str, found: Mapping[str, dict[str, Any]]) -> str:
    """The last column of a row."""
    if key not in found:
        return NOT_MEASURED if SMALL else "not measured: its part failed or did not run"
    value, words = found[key]["value"], found[key]["words"]
    if value != value:
        return f"not measured: {words}"
    holds = ROWS[key].holds(value)
    return words if holds is not False or SMALL else f"{words}, **below the target**"


def markdown(found: Mapping[str, dict[str, Any]]) -> str:
    """The table of RESULTS.md."""
    lines = ["| claim | script | before | prototype | target | now |", "|---|---|---|---|---|---|"]
    for key, row in ROWS.items():
        now = NOT_MEASURED if SMALL else now_of(key, found)
        lines.append(
            f"| {row.claim} | {row.script} | {row.before} | {row.prototype} | {row.target} | {now} |"
        )
    return "\n".join(lines)


def table(found: Mapping[str, dict[str, Any]]) -> str:
    """The rows of this run beside their targets."""
    widths = [max(len(key) for key in ROWS), max(len(row.target) for row in ROWS.values())]
    lines = [
        f"{key:<{widths[0]}}  {row.target:<{widths[1]}}  {now_of(key, found)}" for key, row in ROWS.items()
    ]
    head = (
        "sizes of a trial on a CPU: these figures say that the scripts run, and nothing about speed\n"
        if SMALL
        else ""
    )
    return head + "\n".join(lines)


def missing() -> list[str]:
    """Packages that adiabat or a row needs and this machine lacks, with what needs them."""
    root = Path(__file__).resolve().parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[=<>!~ ;\[]", line, maxsplit=1)[0] for line in project["dependencies"]]
    lacking = []
    for name in (*names, "sentence-transformers"):
        try:
            version(name)
        except PackageNotFoundError:
            lacking.append(f"{name} ({USED_BY.get(name, 'adiabat')})")
    return lacking


def show_device() -> None:
    """Print what the rows depend on."""
    device = (
        f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
        if torch.cuda.is_available()
        else "no GPU: small sizes on the CPU"
    )
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "numpy"))
    print(
        f"{date.today()}: {device}; {os.cpu_count()} CPU cores; {versions}; Python {sys.version.split()[0]}"
    )
    if lacking := missing():
        print(
            f"missing packages: {'; '.join(lacking)}. Rows that need them fail; wheels "
            "unpacked into a folder serve as SITE=FOLDER"
        )


def of_golden(printed: str, code: int) -> None:
    """Rows of what `golden.py check` printed; a crash leaves none."""
    lines = [line for line in printed.splitlines() if re.match(r"(equal$|[\w-]+(, resumed)?: )", line)]
    if not lines:
        raise SystemExit(f"golden.py printed no verdict, exit code {code}")
    resumed, others = (
        [line for line in lines if (", resumed: " in line) is which] for which in (True, False)
    )
    others = [line for line in others if line != "equal" and "note: " not in line]
    append("golden resumed", float(not resumed), "; ".join(resumed) or "equal")
    append("golden cpu", float(not others), "; ".join(others) or "to 1 %")


def union_share(intervals: list[tuple[float, float]], wall: float) -> float:
    """Share of the wall time, in percent, that at least one of the intervals covers."""
    covered, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return 100 * covered / wall


def kernel_share(job: Any) -> float:
    """Share of a job's wall time, in percent, in which a kernel or a copy runs on the GPU."""
    from torch.autograd import DeviceType  # type: ignore[attr-defined]
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        start = time.perf_counter()
        job()
        torch.cuda.synchronize()
        wall = 1e6 * (time.perf_counter() - start)
    # Annotations, such as that of an optimizer's step, cover the gaps between kernels too.
    events = [
        event
        for event in profiler.events()
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation
    ]
    return union_share([(event.time_range.start, event.time_range.end) for event in events], wall)


def main() -> None:
    """Print or append."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("device")
    golden = actions.add_parser("golden")
    golden.add_argument("printed", type=Path)
    golden.add_argument("code", type=int)
    seconds = actions.add_parser("seconds")
    seconds.add_argument("key")
    seconds.add_argument("seconds", type=float)
    seconds.add_argument("code", type=int)
    whole = actions.add_parser("table")
    whole.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if options.action == "device":
        show_device()
    elif options.action == "golden":
        of_golden(options.printed.read_text(encoding="utf-8"), options.code)
    elif options.action == "seconds":
        if options.code:
            append_failure(options.key, f"exit code {options.code} after {options.seconds:.1f} s")
        else:
            append(options.key, options.seconds, f"{options.seconds:.1f}")
    else:
        found = measured(Path(os.environ.get("GPU_ROWS", os.devnull)))
        print(markdown(found) if options.markdown else table(found))


if __name__ == "__main__":
    main()
