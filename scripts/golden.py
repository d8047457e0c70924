"""Run every job of adiabat in tiny form, and compare its weights and numbers with those of an earlier
version.

    python scripts/golden.py write FILE [--demo] [--only NAME ...]
    python scripts/golden.py check FILE [--demo] [--only NAME ...]

Jobs are commands of the command line, run in this process on one thread. Each job that takes optimizer steps
runs a second time, is
interrupted by SIGINT, and resumed: weights and numbers must equal those of the uninterrupted run. On a
machine equal to that which wrote FILE, weights must be equal bit for bit and numbers to ten digits; on
another one, both to 1 %: the first steps of Adam move a weight by the sign of its gradient, which rounding
decides where it is nearly 0. Numbers whose keys in result.json were renamed are looked up by value. `--demo`
compares the table of `adiabat demo` too (minutes).
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import tomli_w
import torch
import transformers
from safetensors import safe_open
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from adiabat.cli import main as adiabat
from adiabat.datasets.bundled import DEMO_RETAIN
from adiabat.training.loop import Loop

RUN = {"run": {"checkpoint_seconds": 1000.0, "log_every": 2}}
TUNE = {"batch_size": 5, "batches_per_epoch": 4, "keep": "last"}
TRAIN = {"batch_size": 4, "validate_every": 4}
LONG = {**TRAIN, "steps": 10, "learning_rate": 1e-3}
PAIRS = {**RUN, "data": {"cache": "cache", "validation_fraction": 0.2}}
JOB, LISTED = {"model": "model", "data": "pairs.jsonl"}, "listed.jsonl"
ASKED = {"name": "asked", "data": "asked.jsonl", "corpus": "corpus.jsonl"}
TASKS = [{**ASKED, "kind": "retrieval"}, {"kind": "nli_grid", "data": "nli.jsonl"}]
SEEDS, MEASURE = {"seeds": [0, 1]}, {"measure": {"resamples": 100}}
ELSEWHERE = 0.01  # relative tolerance on a machine other than that which wrote the file
TRIED = {**SEEDS, "verb": "train", "keep_models": True}
COMPARED = {**PAIRS, **MEASURE, "train": {**TRAIN, "steps": 3}, "sweep": TRIED, "tasks": TASKS[:1]}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "tune": {
        **RUN,
        "data": {"validation_fraction": 0.3},
        "tune": {**TUNE, "max_epochs": 3, "learning_rate": 1e-3},
    },
    "train": {**PAIRS, "job": JOB, "train": LONG},
    "stream": {
        **RUN,
        "job": JOB,
        "data": {"validation": "held.jsonl", "stream": {"shard_size": 12}},
        "train": LONG,
    },
    "distill": {**RUN, "train": {**LONG, "keep": "last"}},
    "measure": MEASURE,
    "suite": {
        **MEASURE,
        "tasks": [
            *TASKS,
            {"kind": "question_grid", "data": "questions.jsonl", "corpus": "paragraphs.jsonl"},
            {"kind": "triplets", "data": LISTED},
            {"kind": "bitext", "data": "parallel.jsonl", "a": "en", "b": "de"},
            *({"kind": kind, "data": "similar.jsonl", "name": kind} for kind in ("sts", "words")),
            {
                "kind": "pair_classification",
                "data": "similar.jsonl",
                "name": "same",
                "label": "same",
                "positive": "true",
            },
            {"kind": "classification", "data": "labelled.jsonl", "test": "tested.jsonl"},
            {"kind": "clustering", "data": "labelled.jsonl", "name": "clusters", "restarts": 2},
        ],
    },
    "sweep": {
        **{
            **RUN,
            **MEASURE,
            "sweep": SEEDS,
            "job": JOB,
            "tune": {**TUNE, "max_epochs": 1, "loss": {"margin": 0.3}},
        },
        **{"grid": {"tune": {"learning_rate": [1e-4, 1e-3]}}, "probes": {"data": "probes.txt", "depth": 10}},
        "tasks": TASKS,
    },
    "data": {
        **COMPARED,
        "job": {"model": "model"},
        "variants": [{"job": {"data": n}, "name": n[:4]} for n in (JOB["data"], LISTED)],
    },
    "backbones": {
        **COMPARED,
        "job": {"data": "pairs.jsonl"},
        "variants": [{"name": n, "job": {"model": n}} for n in ("model", "other")],
    },
    "scaling": {
        **{**PAIRS, "job": {"data": "pairs.jsonl"}, "train": TRAIN},
        "scaling": {"budgets": [4e6, 8e6, 1.6e7], "least_steps": 1, "resamples": 20},
        "models": [{"model": "model", "blocks": [1, 2, 3], "pretraining_rate": 0.03}],
    },
}
"""TOML files by name."""


@dataclass(frozen=True)
class Job:
    """A command, in which OUT stands for its output; its second run is interrupted after step `stop`, if not
    0.
    """

    command: str
    settings: str = ""
    stop: int = 0

    @property
    def words(self) -> list[str]:
        """Of the command line."""
        return [
            *self.command.split(),
            *(word for setting in self.settings.split() for word in ("--set", setting)),
        ]

    @property
    def needs(self) -> set[str]:
        """Jobs whose output it reads."""
        return {name for word in self.words[1:] for name in re.split("[=/]", word) if name in JOBS}


TUNED, TRAINED = "tune model store pairs.jsonl --out OUT --config tune.toml", "train train.toml --out OUT"
GUARD = "guard.probes=probes.txt guard.depth=10 guard.limit=0.6 guard.action=back"
RATES = (
    "rate_search.low=1e-5 rate_search.high=1e-1 rate_search.count=3 rate_search.steps=4 "
    "rate_search.checks=2 guard.depth=10"
)
CACHED = "towers.projection_width=8 memory.cached=true memory.chunk_tokens=64 memory.loss_tile=3"
FROZEN, DISTILL = (
    "towers.kind=asymmetric towers.frozen=document",
    "--teacher other --student model --out OUT --config distill.toml",
)
BASELINE, RETAIN = (
    "--baseline model --out OUT",
    "--retain store listed.jsonl --retain grid nli.jsonl --config measure.toml",
)
JOBS = {
    "store": Job("embed model corpus.jsonl --out OUT --json"),
    "grid": Job("embed model nli.jsonl --out OUT --json"),
    "tune": Job(TUNED, "tune.loss.margin=0.3", 6),
    "tune-lora": Job(
        TUNED, "tune.loss=store_softmax tune.method=lora tune.method.rank=2 tune.l2_to_start=0.1", 6
    ),
    "tune-guarded": Job(
        TUNED, f"tune.loss=in_batch_softmax tune.negatives=hardest tune.dropout=true {GUARD}", 6
    ),
    "tune-rehearsed": Job(
        TUNED, "rehearsal.texts=held.txt rehearsal.texts_per_step=4 tune.negatives=random", 6
    ),
    "train": Job(TRAINED, stop=5),
    "train-stream": Job("train stream.toml --out OUT", stop=5),
    "train-frozen": Job(TRAINED, f"{FROZEN} train.loss.guide=other", 5),
    "train-stored": Job(TRAINED, f"{FROZEN} towers.store=store train.loss.temperature=learned", 5),
    "train-lora": Job(
        TRAINED,
        'train.method={kind="lora",rank=2} train.loss=samtone '
        "train.loss.same_tower=both train.schedule=cosine",
        5,
    ),
    "train-cached": Job(
        TRAINED, f"towers.kind=shared_projection {CACHED} train.matryoshka=[4] train.keep=best", 5
    ),
    "distill-static": Job("distill static other --out OUT --dims 8 --corpus corpus.jsonl"),
    "distill-fit": Job(f"distill fit {DISTILL} --texts corpus.jsonl --queries pairs.jsonl", stop=4),
    "distill-multilingual": Job(
        f"distill multilingual {DISTILL} --parallel parallel.jsonl --languages de", stop=4
    ),
    "evaluate": Job(f"evaluate tune store asked.jsonl {BASELINE} {RETAIN}"),
    "suite": Job("evaluate model tune bm25 --suite suite.toml --out OUT"),
    "compare": Job("compare suite/scores/model suite/scores/tune --out OUT --config measure.toml"),
    "space": Job(
        f"space tune store pairs.jsonl {BASELINE}", "space.resamples=100 space.pairs=100 space.folds=2"
    ),
    "search": Job("search store word1 --model tune --compare model --json"),
    "mine": Job(
        "mine pairs.jsonl corpus.jsonl --out OUT.jsonl --source fused --model model --store store",
        "mine.depth=20",
    ),
    "inspect": Job("inspect pairs.jsonl --model model --json"),
    "demo-store": Job(f"embed demo {DEMO_RETAIN['tico19'][0]} --out OUT --json"),
    "advise": Job(f"advise demo demo-store {DEMO_RETAIN['tico19'][1]} --out OUT", "advise.queries=100"),
    "sweep": Job("sweep sweep.toml --out OUT", "job.store=store", 10),
    "safe-rate": Job(
        "safe-rate model store pairs.jsonl --out OUT --probes probes.txt --config tune.toml", RATES, 2
    ),
    "sweep-data": Job("sweep data.toml --out OUT", stop=5),
    "sweep-backbones": Job("sweep backbones.toml --out OUT", stop=5),
    "scaling": Job("scaling scaling.toml --out OUT", stop=20),
    "plan": Job(
        "plan --budget 3e8 --runs scaling --json", "plan.least_steps=1 plan.resamples=10 plan.measure=false"
    ),
}
VARYING = re.compile("(.*_)?seconds|memory|speed|settings|versions|inputs|format|size")
"""Keys whose numbers differ between equal runs, or say what was asked for."""

WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "which",
    "is",
    *(f"{kind}{number}" for kind in ("word", "wort") for number in range(60)),
)
Entry = dict[str, Any]
"""Of a job: `numbers` by key; and, where it leaves them, `weights` by path and `sha256` of a file."""


def write_world(folder: Path) -> None:
    """Write two tiny models, the data and the settings that jobs read."""

    def lines(name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )

    def both(text: str) -> dict[str, str]:
        return {"en": text, "de": text.replace("word", "wort")}

    for seed, (name, width) in enumerate((("model", 16), ("other", 24))):
        _write_model(folder / name, seed, width)
    for name, tables in SETTINGS.items():
        (folder / f"{name}.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    texts = [f"word{n} word{n // 6} word{n * 7 % 60}" for n in range(60)]
    lines("corpus", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    lines(
        "pairs",
        [
            {"query": f"which is word{n}", "pos": [texts[n]], "neg": [texts[n + 1], texts[n + 9]]}
            for n in range(40)
        ],
    )
    lines("asked", [{"query": f"which is word{n}", "pos": [f"d{n}"]} for n in range(20, 40)])
    lines("held", [{"query": f"is {texts[n]}", "pos": [texts[n]], "neg": [texts[0]]} for n in range(45, 55)])
    lines("listed", [{"query": f"is {texts[n]}", "pos": [texts[n]], "neg": texts[30:40]} for n in range(25)])
    similar = [
        {"a": texts[n], "b": texts[n * 11 % 60], "score": n * n % 11, "set": f"set {n % 2}"}
        for n in range(30)
    ]
    lines("similar", [{**row, "same": n % 3 == 0} for n, row in enumerate(similar)])
    labelled = [{"text": text, "label": f"label {n % 3}"} for n, text in enumerate(texts)]
    lines("labelled", labelled[:30])
    lines("tested", labelled[30:])
    lines("parallel", map(both, texts))
    labels = ("entailment", "neutral", "contradiction")
    lines(
        "nli",
        [
            {"label": labels[n % 3], "premise": both(f"is word{n // 3}"), "hypothesis": both(texts[n])}
            for n in range(30)
        ],
    )
    lines("paragraphs", [{"para": f"p{n}", **both(texts[n])} for n in range(6)])
    lines(
        "questions",
        [{"id": f"{n}", "para": f"p{n % 6}", **both(f"which word{n % 6} word{n}")} for n in range(18)],
    )
    (folder / "probes.txt").write_text(
        "".join(f"word{n} is word{n + 3}\n" for n in range(30)), encoding="utf-8"
    )
    (folder / "held.txt").write_text("".join(f"is wort{n}\n" for n in range(20)), encoding="utf-8")


def _write_model(folder: Path, seed: int, width: int) -> None:
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
    }
    transformers.BertModel(
        transformers.BertConfig(vocab_size=len(WORDS), initializer_range=0.2, **shape)
    ).save_pretrained(folder)
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        model_max_length=64,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)


def run_command(words: Sequence[str], *, stop: int = 0) -> tuple[int, str, str]:
    """Run a command of adiabat in this process; returns exit code, stdout and stderr.

    SIGINT comes after step `stop` of a loop.
    """
    steps, take = 0, Loop.step

    # Not after a step of the optimizer: on a GPU it takes some when steps are recorded, and none when they
    # are replayed.
    def counted(self: Loop) -> None:
        nonlocal steps
        take(self)
        steps += 1
        if steps == stop:
            signal.raise_signal(signal.SIGINT)

    out, err, code = io.StringIO(), io.StringIO(), 0
    # A process in the background ignores SIGINT, and an interrupted command leaves the handler that ends the
    # process.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    words_given, steps_counted = (
        mock.patch.object(sys, "argv", ["adiabat", *words]),
        mock.patch.object(Loop, "step", counted),
    )
    try:
        with words_given, steps_counted, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            adiabat()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        signal.signal(signal.SIGINT, handler)
    return code, out.getvalue(), err.getvalue()


def run_job(job: Job, out: str, *, interrupted: bool = False) -> Entry:
    """Run a job in the working directory, once, or interrupted and then resumed."""
    words = [word.replace("OUT", out) for word in job.words]
    if interrupted:
        code, _, err = run_command(words, stop=job.stop)
        if code != 130:
            raise SystemExit(
                f"{' '.join(words)} must be interrupted at optimizer step "
                f"{job.stop}, got exit code {code}: {err}"
            )
        words.append("--resume")
    code, printed, err = run_command(words)
    if code:
        raise SystemExit(f"{' '.join(words)} ended with exit code {code}: {err}")
    return _entry(Path(out), printed)


def _entry(out: Path, printed: str) -> Entry:
    rows, result = Path(f"{out}.jsonl"), out / "result.json"
    if rows.exists():
        lines = rows.read_bytes().splitlines()
        return {
            "sha256": hashlib.sha256(b"".join(lines)).hexdigest(),
            "numbers": numbers_of([json.loads(line) for line in lines]),
        }
    entry: Entry = {
        "numbers": numbers_of(json.loads(result.read_text(encoding="utf-8") if result.exists() else printed))
    }
    files = [path for path in sorted(out.rglob("*.safetensors")) if "checkpoints" not in path.parts]
    return (
        {**entry, "weights": {str(path.relative_to(out)): _weights(path) for path in files}}
        if files
        else entry
    )


def _weights(path: Path) -> Mapping[str, Any]:
    """Digest of a file's tensors, whatever its metadata; and sum, sum of squares and size of each."""
    digest, sums = hashlib.sha256(), []
    with safe_open(path, "pt") as tensors:
        for name in sorted(tensors.keys()):
            tensor = tensors.get_tensor(name).contiguous()
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode() + tensor.numpy().tobytes())
            wide = tensor.double()
            sums.append(
                [
                    *(float(f"{number:.6g}") for number in (wide.sum().item(), wide.square().sum().item())),
                    wide.numel(),
                ]
            )
    return {"sha256": digest.hexdigest(), "sums": sums}


def numbers_of(value: Any, key: str = "") -> dict[str, list[float]]:
    """Numbers of a record to ten digits, by their keys without positions in lists."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {key: [float(f"{value:.10g}") if isinstance(value, float) else value]}
    inner = [(key, item) for item in value] if isinstance(value, list) else []
    if isinstance(value, dict):
        inner = [
            (f"{key}.{name}".lstrip("."), value[name])
            for name in sorted(value)
            if not VARYING.fullmatch(name)
        ]
    numbers: dict[str, list[float]] = {}
    for path, values in (pair for name, item in inner for pair in numbers_of(item, name).items()):
        numbers.setdefault(path, []).extend(values)
    return numbers


def differences(before: Entry, after: Entry, *, exact: bool) -> Iterator[str]:
    """Sentences about what changed in a job; one that begins with "note" is no fault."""
    old, new = before.get("weights", {}), after.get("weights", {})
    if sorted(old) != sorted(new):
        yield (
            f"note: weights lie at {', '.join(new.keys() - old.keys())}, formerly "
            f"at {', '.join(old.keys() - new.keys())}"
        )
    digests = [[weights["sha256"] for weights in files.values()] for files in (old, new)]
    if exact and (sorted(digests[0]) != sorted(digests[1]) or before.get("sha256") != after.get("sha256")):
        yield (
            f"{sum(digest not in digests[0] for digest in digests[1])} of {len(new)} "
            "weights, or the file written, changed"
        )
    elif not exact and not _alike(
        *([sums for weights in files.values() for sums in weights["sums"]] for files in (old, new))
    ):
        yield "weights changed by more than 1 %"
    yield from _number_differences(
        _compared(before, exact), _compared(after, exact), 1e-9 if exact else ELSEWHERE
    )


def _compared(entry: Entry, exact: bool) -> dict[str, list[float]]:
    # Elsewhere without those that a single weight decides.
    return {
        key: numbers
        for key, numbers in entry.get("numbers", {}).items()
        if exact or not key.startswith("training.layers")
    }


def _alike(before: list[list[float]], after: list[list[float]]) -> bool:
    # A sum may cancel out: its error goes with the most that numbers of this sum of squares can sum to.
    return len(before) == len(after) and all(
        abs(old[0] - new[0]) <= ELSEWHERE * ((old[1] * old[2]) ** 0.5 + 1)
        and abs(old[1] - new[1]) <= ELSEWHERE * (old[1] + 0.1)
        for old, new in zip(before, after, strict=True)
    )


def _number_differences(
    before: Mapping[str, list[float]], after: Mapping[str, list[float]], tolerance: float
) -> Iterator[str]:
    lost, added = [], []

    def close(old: float, new: float) -> bool:
        return abs(old - new) <= tolerance * max(abs(old), abs(new), 0.01)

    for key in sorted({*before, *after}):
        old, new = before.get(key, []), after.get(key, [])
        if len(old) != len(new):
            lost += [(number, key) for number in old]
            added += [(number, key) for number in new]
        elif changed := [pair for pair in zip(old, new, strict=True) if not close(*pair)]:
            yield (
                f"{len(changed)} of {len(old)} numbers under {key} changed, such as "
                f"{changed[0][0]!r} to {changed[0][1]!r}"
            )
    moved = len(lost)
    for item in list(lost):
        if match := next((other for other in added if close(item[0], other[0])), None):
            lost.remove(item)
            added.remove(match)
    if moved or added:
        report = (
            f"{len(lost)} numbers lost ({_examples(lost)}), {len(added)} new ({_examples(added)}), "
            f"{moved - len(lost)} under other keys"
        )
        yield report if lost else f"note: {report}"


def _examples(numbers: Sequence[tuple[float, str]]) -> str:
    return (
        ", ".join(f"{key} = {number!r}" for number, key in numbers[:: max(1, len(numbers) // 3)][:3])
        or "none"
    )


def run_jobs(names: Iterable[str], folder: Path) -> tuple[dict[str, Entry], list[str]]:
    """Run jobs and those that they need in an empty folder; returns entries by name, and faults of the runs
    that were resumed.
    """
    wanted = set(names)
    for name in reversed(JOBS):
        if name in wanted:
            wanted |= JOBS[name].needs
    entries, faults = {}, []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with (
            contextlib.chdir(folder),
            threadpool_limits(1),
            mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "home")),
        ):
            write_world(folder)
            for name in (name for name in JOBS if name in wanted):
                entries[name] = run_job(JOBS[name], name)
                if JOBS[name].stop:
                    resumed = run_job(JOBS[name], f"{name}-resumed", interrupted=True)
                    faults += [
                        f"{name}, resumed: {fault}"
                        for fault in differences(entries[name], resumed, exact=True)
                    ]
    finally:
        torch.set_num_threads(threads)
    return entries, faults


def machine() -> dict[str, str]:
    """What weights depend on bit for bit."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", info.read_text(encoding="utf-8")) if info.exists() else None
    cpu = f"{model and model[1]}, {torch.backends.cpu.get_cpu_capability()}"
    return {"cpu": cpu, "torch": torch.__version__, "transformers": transformers.__version__, "threads": "1"}


def check(golden: Mapping[str, Any], names: Iterable[str], folder: Path, *, exact: bool = True) -> list[str]:
    """Run jobs in an empty folder; returns how they differ from the earlier version, notes among the
    faults.
    """
    entries, faults = run_jobs(names, folder)
    pairs = {name: (golden["jobs"].get(name, {}), entry) for name, entry in entries.items()}
    exact = exact and golden["machine"] == machine()
    return faults + [
        f"{name}: {fault}" for name, pair in pairs.items() for fault in differences(*pair, exact=exact)
    ]


def main() -> None:
    """Write a golden file, or check against one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(JOBS),
        default=list(JOBS),
        metavar="NAME",
        help="jobs to check, or to write anew",
    )
    parser.add_argument("--demo", action="store_true", help="run the demo too")
    options = parser.parse_args()
    os.environ.setdefault("COLUMNS", "200")
    golden = json.loads(options.file.read_text(encoding="utf-8")) if options.file.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        if options.action == "check":
            faults = check(golden, options.only, Path(folder))
        else:
            entries, faults = run_jobs(options.only, Path(folder))
            entries = {**golden.get("jobs", {}), **entries}
        table = golden.get("demo", [])
        if options.demo:
            code, out, err = run_command(["demo", "--out", f"{folder}/demo"])
            table = [
                " ".join(line.split())
                for line in (out + err).splitlines()
                if re.match(r"\s*(target|retain): ", line)
            ]
            faults += [f"the demo ended with exit code {code}: {err}"] if code else []
    if options.action == "write":
        jobs = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(entries[name], separators=(',', ':'))}" for name in JOBS
        )
        head = json.dumps({"machine": machine(), "demo": table}, indent=1)
        options.file.write_text(f'{head[:-2]},\n "jobs": {{\n{jobs}\n}}}}\n', encoding="utf-8")
    elif table != golden["demo"]:
        faults.append("\n".join(["demo: its table is now", *table]))
    print("\n".join(faults) or "equal")
    sys.exit(any("note: " not in fault for fault in faults))


if __name__ == "__main__":
    main()
