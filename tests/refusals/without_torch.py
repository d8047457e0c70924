"""Every verb with every cheap mistake, in a process in which torch and the like cannot be imported; prints
what happened as JSON lines.

Run by `test_checks_first.py` in a folder that `write_mistakes` filled.
"""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from io import StringIO

HEAVY = frozenset(("torch", "transformers", "sentence_transformers", "datasets", "pandas", "sklearn"))

INPUTS = {"model": "model", "store": "store", "data": "pairs.jsonl", "corpus": "corpus.jsonl", "out": "new"}
ADVISED = "advise {model} {store} {data} --out {out}"
EVALUATED = "evaluate {model} {store} {data} --out {out}"
STUDENT = "--teacher {model} --student {model} --out {out}"
VERBS = {
    "embed": "embed {model} {corpus} --out {out}",
    "import": "embed {model} {corpus} --import vectors.npy --ids notes/todo --out {out}",
    "advise": ADVISED,
    "tune": "tune {model} {store} {data} --out {out}",
    "dry run": "tune {model} {store} {data} --dry-run",
    "evaluate": EVALUATED,
    "suite": "evaluate {model} --suite suite.toml --out {out}",
    "search": "search {store} hello --model {model}",
    "train": "train run.toml --set job.model={model} --set job.data={data} --out {out}",
    "estimate": "train run.toml --set job.model={model} --set job.data={data} --dry-run",
    "mine": "mine {data} {corpus} --out {out}.jsonl --source dense --model {model} --store {store}",
    "label": "label {data} {store} --reranker {model} --out {out}.jsonl --model {model}",
    "inspect": "inspect {data} --model {model} --store {store}",
    "static": "distill static {model} --out {out} --weighting tfidf --corpus {corpus}",
    "fit": f"distill fit {STUDENT} --texts {{corpus}} --queries {{data}}",
    "multilingual": f"distill multilingual {STUDENT} --parallel {{data}}",
    "pair": "distill pair {model} model --out {out}",
    "ablate": "distill ablate {model} --suite suite.toml --texts {corpus} --queries {data} --out {out}",
    "sweep": "sweep sweep.toml --set job.model={model} --set job.store={store} "
    "--set job.data={data} --out {out}",
    "train sweep": "sweep train_sweep.toml --set job.model={model} --set job.data={data} --out {out}",
    "scaling": "scaling scaling.toml --set job.data={data} --set data.corpus={corpus} --out {out}",
    "plan": "plan --budget 1e17 --model {model} --out {out}",
    "safe-rate": "safe-rate {model} {store} {data} --out {out}",
    "compare": "compare first.parquet second.parquet --out {out}",
    "space": "space {model} {store} {data} --out {out}",
    "squad": "data squad {data} --out {out}",
    "demo": "demo --out {out}",
}
WRONG = {
    "model": ("gone/model", "notes", "no-such-model", "pairs.jsonl"),
    "store": ("gone", "notes", "pairs.jsonl"),
    "data": ("gone.jsonl", "notes/todo"),
    "corpus": ("gone.jsonl",),
    "out": (
        "job",
        "notes",
        "a_file",
        "model",
        "store",
        "job/inside",
        "model/inside",
        "store/inside",
        "a_file/inside",
    ),
}
SETTING = " --set run.nonsense=1"
NO_SETTINGS = ("pair", "import", "demo")
RIGHT = (("embed", "store"), ("import", "store"))
"""An `--out` that a verb takes: it may go on there."""
FURTHER = (
    f"{EVALUATED} --baseline gone/model",
    f"{EVALUATED} --baseline notes",
    f"{EVALUATED} --baseline-store store",
    f"{EVALUATED} --baseline model --baseline-store gone",
    f"{EVALUATED} --run gone/model",
    f"{EVALUATED} --run model",
    f"{EVALUATED} --retain gone corpus.jsonl",
    f"{EVALUATED} --retain store gone.jsonl",
    f"{EVALUATED} --retain store pairs.jsonl",
    f"{EVALUATED} --fail-on worse",
    f"{EVALUATED} --set measure.report=nonsense",
    f"{EVALUATED} --device gpu",
    f"{ADVISED} --retain gone corpus.jsonl",
    f"{ADVISED} --retain store gone.jsonl",
    f"{ADVISED} --retain store pairs.jsonl",
    "evaluate gone/model --suite suite.toml --out new",
    "evaluate model --suite gone.toml --out new",
    "evaluate model --suite lost.toml --out new",
    "evaluate model --suite of_mteb.toml --out new",
    "evaluate model --suite suite.toml --baseline gone --out new",
    "space model store pairs.jsonl --baseline gone/model --out new",
    "space model store pairs.jsonl --baseline-store store --out new",
    "space model store pairs.jsonl --map --out new",
    f"{EVALUATED} --retain store strange.jsonl",
    "evaluate model store strange.jsonl --out new",
    "advise model store strange.jsonl",
    "space model store strange.jsonl --out new",
    "tune model store strange.jsonl --out new",
    "train run.toml --out new --set job.data=strange.jsonl",
    "mine strange.jsonl corpus.jsonl --out m.jsonl",
    "embed model corpus.jsonl --import vectors.npy --out new",
    "tune model store pairs.jsonl --out new --set data.validation=gone.jsonl",
    "train run.toml --out new --set data.validation=gone.jsonl",
    "train run.toml --out new --set towers.document_model=gone/model --set towers.kind=asymmetric",
    "mine pairs.jsonl corpus.jsonl --out m.txt",
    "mine pairs.jsonl corpus.jsonl --out gone/m.jsonl",
    "mine pairs.jsonl corpus.jsonl --out corpus.jsonl",
    "mine pairs.jsonl corpus.jsonl --out m.jsonl --model model",
    "mine pairs.jsonl corpus.jsonl --out m.jsonl --index pairs.jsonl",
    "label strange.jsonl store --reranker model --out m.jsonl",
    "label pairs.jsonl store --reranker gone/model --out m.jsonl",
    "label pairs.jsonl store --reranker model --out m.txt",
    "label pairs.jsonl store --reranker model --out corpus.jsonl",
    "label pairs.jsonl store --reranker model --model gone/model --out m.jsonl",
    "label store pairs.jsonl --reranker model --out m.jsonl",
    "distill static model --out new --vocabulary gone.txt",
    "distill ablate model --suite gone.toml --out new",
    "compare gone.parquet second.parquet --out new",
    "compare first.parquet first.parquet --out new",
    "compare pairs.jsonl corpus.jsonl --out new",
    "plan",
    "plan --budget-time 8h --runs gone",
    "embed model corpus.jsonl --out gone --append",
    "embed model corpus.jsonl --import gone.npy --out new",
    "embed model corpus.jsonl --import pairs.jsonl --out new",
    "embed model corpus.jsonl --import vectors.npy --ids gone.txt --out new",
    "embed model corpus.jsonl --import vectors.npy --out new",
    "embed model corpus.jsonl --import codes.npy --ids pairs.jsonl --out new",
    "embed model model --out new",
    "search store ' ' --model model",
    "sweep lost_sweep.toml --out new",
    "scaling lost_scaling.toml --out new",
    "data xkcd pairs.jsonl --out new",
)


class Blocked(MetaPathFinder):
    """Refuses slow packages, and remembers which was asked for."""

    asked: list[str]

    def __init__(self) -> None:
        self.asked = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in HEAVY:
            self.asked.append(name)
            raise ImportError(f"{name} is slow to import")
        return None


def commands() -> Iterator[str]:
    for verb, template in VERBS.items():
        for argument, wrong in WRONG.items():
            if f"{{{argument}}}" in template:
                for value in wrong:
                    of_file = verb in ("mine", "label") and argument == "out"
                    if not of_file and (verb, value) not in RIGHT:
                        yield template.format(**{**INPUTS, argument: value})
        if verb not in NO_SETTINGS:
            yield template.format(**INPUTS) + SETTING
    for template in FURTHER:
        yield template.format(**INPUTS)


def main() -> None:
    # Optional packages that are missing are known without importing them.
    sys.modules.update(dict.fromkeys(("mteb", "openTSNE")))
    blocked = Blocked()
    sys.meta_path.insert(0, blocked)
    from adiabat import cli

    for command in commands():
        sys.argv = ["adiabat", *shlex.split(command)]
        blocked.asked.clear()
        err, code = StringIO(), 0
        with redirect_stderr(err), redirect_stdout(StringIO()):
            try:
                cli.main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
        print(json.dumps([command, code, err.getvalue(), blocked.asked]), flush=True)


if __name__ == "__main__":
    main()
