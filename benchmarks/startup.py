"""CPU time to start verbs, and whether they load torch.

Each command runs in a separate process, with a tiny model and tiny data, so that nearly all of its time is
imports. `search` is compared with a bare script that loads the same model by AutoModel and embeds one query;
most of that is transformers' own modelling code.

Run with ``python benchmarks/startup.py [--rounds 5]``.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

VERBS = (
    *("embed", "tune", "train", "evaluate", "search", "inspect", "mine", "space", "sweep", "scaling"),
    *("plan", "settings", "safe-rate", "compare", "data", "demo", "distill"),
)

WATCHED = """
import atexit, os, sys
atexit.register(lambda: os.write(2, b"torch was loaded" if "torch" in sys.modules else b"no torch"))
from adiabat.cli import main
sys.argv = ["adiabat", *sys.argv[1:]]
main()
"""

BARE = """
import sys, torch
from transformers import AutoModel, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained(sys.argv[1]), AutoModel.from_pretrained(sys.argv[1])
with torch.no_grad():
    tokens = tokenizer(["a question"], return_tensors="pt")
    print(torch.nn.functional.normalize(model(**tokens).last_hidden_state.mean(1)).shape)
"""

WITHOUT_MODEL = {
    "inspect": ("inspect", "pairs.jsonl"),
    "settings": ("settings", "tune"),
    "data": ("data", "squad", "none", "--out", "new"),
    "plan": ("plan", "--budget", "1e15"),
    "compare": ("compare", "scores/one", "scores/other"),
}
"""Verbs that need no model, with arguments; some end with a message about files that are missing."""


def main() -> None:
    """Print the seconds of each verb, and the ratio of `search`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_world(folder)
        commands = {f"{verb} --help": (verb, "--help") for verb in VERBS} | WITHOUT_MODEL
        for label, words in commands.items():
            seconds, loaded = measured([sys.executable, "-c", WATCHED, *words], folder, rounds)
            print(f"{label:20} {seconds:5.2f} s of CPU, {'torch is loaded' if loaded else 'without torch'}")
        search = [sys.executable, "-c", WATCHED, "search", "store", "a question", "--model", "demo"]
        ratios = []
        for _ in range(rounds):
            ours, _ = measured(search, folder, 1)
            bare, _ = measured([sys.executable, "-c", BARE, model], folder, 1)
            ratios.append(ours / bare)
            print(f"search {ours:.2f} s, a bare script {bare:.2f} s")
        print(
            f"startup: ratio of search {statistics.median(ratios):.2f} (target 1.2), "
            f"range {min(ratios):.2f} to {max(ratios):.2f}"
        )


def write_world(folder: Path) -> str:
    """A corpus with its store, and examples; returns the folder of the embedded model."""
    documents = [{"_id": f"d{number}", "text": f"document {number}"} for number in range(20)]
    pairs = [{"query": f"question {number}", "pos": [f"d{number}"]} for number in range(20)]
    for name, rows in (("corpus.jsonl", documents), ("pairs.jsonl", pairs)):
        (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    import adiabat
    from adiabat.models.model_paths import demo_model_folder

    adiabat.embed("demo", folder / "corpus.jsonl", folder / "store")
    return str(demo_model_folder())


def measured(command: Sequence[str], folder: Path, rounds: int) -> tuple[float, bool]:
    """Median CPU seconds of a command, and whether it loaded torch."""
    taken, loaded = [], False
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        loaded = "torch was loaded" in done.stderr
        if done.returncode not in (0, 2):
            raise SystemExit(f"{command[3:]} failed: {done.stderr}")
    return statistics.median(taken), loaded


if __name__ == "__main__":
    main()
