"""What each verb refuses: one line, exit code 2, and nothing left behind.

A row is a command, which writes into `new` unless it says otherwise, and facts that its line must hold.
"""

import shlex
from pathlib import Path

import pytest

from tests.commands import Run, assert_refused, listing
from tests.commands import run as run
from tests.pages import no_page as no_page
from tests.refusals.world import write_mistakes

Refused = tuple[str, *tuple[str, ...]]

ON_PAIRS = "evaluate model store pairs.jsonl"
ON_STS = "evaluate model --suite sts.toml"
TUNED = "tune model store pairs.jsonl"
RATED = "safe-rate model store pairs.jsonl"
IMPORTED = "embed model corpus.jsonl --import vectors.npy --ids ids.txt"
CHANGED = "embed model changed.jsonl --out store"
FITTED = "distill fit --teacher model --student small"
TRANSLATED = "distill multilingual --teacher model --student small --parallel"
ABLATED = "distill ablate model --suite sts.toml"
ADVISED = "advise model store pairs.jsonl"
SPACED = "space model store pairs.jsonl"

EMBED: list[Refused] = [
    ("embed", "Missing", "adiabat embed --help"),
    ("embed model", "CORPUS must be given"),
    ("embed model corpus.jsonl --ot x", "--ot", "adiabat embed --help"),
    ("embed corpus.jsonl model", "model is a model", "MODEL CORPUS"),
    ("embed no-such/model corpus.jsonl", "MODEL must be a directory", "got no-such/model"),
    ("embed '' corpus.jsonl", "MODEL must be a directory", "got an empty text"),
    ("embed corpus.jsonl corpus.jsonl", "MODEL must be a directory", "got corpus.jsonl"),
    ("embed notes corpus.jsonl", "notes must be the directory of a model"),
    ("embed model ''", "CORPUS must not be empty"),
    ("embed model corpsu.jsonl", "corpsu.jsonl must exist", "corpus.jsonl"),
    ("embed model binary", "binary must end in .jsonl", "got no ending"),
    ("embed model binary.jsonl", "binary.jsonl:1 must be UTF-8"),
    ("embed model empty.jsonl", "empty.jsonl must hold at least one row"),
    ("embed model not_json.jsonl", "2 faults", "not_json.jsonl:2", "this is no JSON", "not_json.jsonl:3"),
    ("embed model twice.jsonl", "twice.jsonl:21", "unique", '"d3"', "twice.jsonl:4"),
    ("embed model corpus.jsonl --config ''", "--config must have a value"),
    # Where the store goes.
    ("embed model corpus.jsonl --out ''", "--out must have a value"),
    ("embed model corpus.jsonl --out new\udcff", "new", "UTF-8", "rename it"),
    ("embed model corpus.jsonl --out a_file", "a_file must be a directory", "is a file"),
    ("embed model corpus.jsonl --out job", "job must be empty or a store", "config.toml"),
    ("embed other corpus.jsonl --out store", "with other settings", "weights", "choose another --out"),
    ("embed model corpus.jsonl --out model/new", "--out must be", "model/new lies in"),
    ("embed model corpus.jsonl --out store/new", "--out must be", "store/new lies in"),
    (f"{IMPORTED} --out model/new", "model/new lies in"),
    (f"{IMPORTED} --out store/new", "store/new lies in"),
    # Documents that are added, changed and deleted.
    ("embed --out store", "MODEL and CORPUS must be given"),
    ("embed model corpus.jsonl --append", "new must be a store"),
    ("embed model corpus.jsonl --append --out store", "document ids must be new to store", '"d0"'),
    ("embed model twice.jsonl --append --set store.dtype=float32 --out store", "store.dtype must", "float32"),
    ("embed model --out store --update", "CORPUS must be given"),
    ("embed model changed.jsonl --update", "new must be a store", "no such directory"),
    (f"{CHANGED} --update --append", "--append", "--update", "choose one"),
    (f"{CHANGED} --delete leaving.txt", "--delete", "--update", "MODEL, CORPUS"),
    ("embed --delete leaving.txt --compact --out store", "--compact", "--delete"),
    ("embed --compact --out store --device cpu", "--compact", "--device"),
    ("embed --delete leaving.txt --out store --exist-ok", "--delete", "--exist-ok"),
    ("embed model changed.jsonl --update --out store --exist-ok", "--update", "--exist-ok"),
    ("embed --delete leaving.txt --out store --min-cosine 0.9", "--delete", "--min-cosine"),
    ("embed model changed.jsonl --update --out store --min-cosine 0.9", "store.min_cosine"),
    (f"{CHANGED} --update --missing drop", "--missing", "--delete"),
    ("embed --delete none.txt --out store", "none.txt", "ids must be a file"),
    ("embed --delete unknown.txt --out store", "store", '"d77"', "--missing drop", "compaction"),
    ("embed --delete leaving.txt --out store --set run.device=cuda", "data.ids alone"),
    ("embed --delete leaving.txt --out model", "model must be a store"),
    (f"{CHANGED} --update --set store.dtype=float32", "store.dtype", "float32"),
    (f"{CHANGED} --update --set encoder.document_prompt=x", "prompt", "store"),
]
IMPORT: list[Refused] = [
    ("embed model corpus.jsonl --ids ids.txt", "--ids", "--import", "give both, or neither"),
    ("embed model corpus.jsonl --import=", "--import must have a value"),
    ("embed model corpus.jsonl --import vectors.npy", "must come with ids"),
    ("embed model corpus.jsonl --import none.npy --ids ids.txt", "none.npy", "there is none"),
    ("embed model corpus.jsonl --import text.npy --ids ids.txt", "text.npy", "npy file", "numpy.save"),
    ("embed model corpus.jsonl --import short.npy --ids ids.txt", "20 ids for 9 vectors"),
    ("embed model corpus.jsonl --import wide.npy --ids ids.txt", "width 32, got 7"),
    (
        "embed model corpus.jsonl --import bad.npy --ids ids.txt",
        "2 vectors",
        '"d3" holds NaN',
        '"d7" is zero',
    ),
    ("embed model corpus.jsonl --import vectors.npy --ids ids.txt", "encoder's at cosine >= 0.999"),
    (f"{IMPORTED} --set store.keep_texts=false", "store.keep_texts must"),
    (f"{IMPORTED} --append --out store", "--append encodes", "--import takes vectors"),
    (
        "embed model changed.jsonl --append --import vectors.npy --out store",
        "--append",
        "--import",
        "--update",
    ),
]
TUNE: list[Refused] = [
    ("tuen", "'tuen'", "adiabat --help"),
    ("tune model pairs.jsonl store", "MODEL STORE DATA"),
    ("tune other store pairs.jsonl", "store was built by another encoder", "weights", "rebuild the store"),
    ("tune no_weights store pairs.jsonl", "no_weights must hold a transformers model", "safetensors"),
    ("tune model '' pairs.jsonl", "STORE must not be empty"),
    ("tune model stroe pairs.jsonl", "stroe must be a store", "adiabat embed MODEL CORPUS --out stroe"),
    ("tune model store ''", "DATA must not be empty"),
    ("tune model store pair.jsonl", "pair.jsonl must exist", "pairs.jsonl"),
    ("tune model store 'pairs\new.jsonl'", r"'pairs\new.jsonl' must exist", "single quotes"),
    ("tune model store not_json.jsonl", *("2 faults", "jsonl:2", "this is no JSON", "jsonl:3")),
    ("tune model store control.jsonl", "control.jsonl:1 must be one JSON object"),
    ("tune model store no_keys.jsonl", "12 faults", "no_keys.jsonl:2:", "no_keys.jsonl:11:", "and 2 more"),
    ("tune model store unknown_doc.jsonl", "unknown_doc.jsonl:21", "d999", "adiabat embed"),
    ("tune model store empty_query.jsonl", 'empty_query.jsonl:21: "query" must not be empty'),
    ("tune model store split", "splits (train, validation), got none", "split?split=NAME"),
    (f"{TUNED} --set data.validation=split", "splits (train, validation), got none", "split?split=NAME"),
    # Settings.
    (f"{TUNED} --config none.toml", "none.toml must be a TOML file", "no such file"),
    (f"{TUNED} --config typo.toml", *("2 faults", "tune.learning_rate?", "run.seed?")),
    (f"{TUNED} --device cuda:63", "run.device must", "this machine", "'cuda:63'"),
    (f"{TUNED} --set 'tune.freeze=[\"embedings\"]'", '"embedings" must', ": embeddings"),
    ('tune model store pairs.jsonl --set \'tune.freeze=["embeddings", "blocks[0:1]"]\'', "freeze must leave"),
    (f"{TUNED} --set data.validation_fraction=0.0001", "0 of 20 held out"),
    (
        f"{TUNED} --set tune.negatives=random --set tune.negatives.per_query=99",
        "at least 100 documents",
    ),
    # Where the job goes.
    (f"{TUNED} --out job", "job holds a job already", "--resume"),
    (f"{TUNED} --out store", "--out must be a new or empty directory", "store"),
    (f"{TUNED} --out a_file", "a_file is a file"),
    (f"{TUNED} --out a_file/x", "a_file/x", "choose another"),
]
EVALUATE: list[Refused] = [
    ("evaluate store model pairs.jsonl", "MODEL STORE DATA"),
    ("evaluate model small", "MODEL STORE DATA", "--suite SUITE", "got model small"),
    ("evaluate model store other_keys.jsonl", "other_keys.jsonl:1: must have", '"positive" (an example)'),
    ("evaluate model store unknown_doc.jsonl", "unknown_doc.jsonl:21", "d999", "data.missing = drop"),
    ("evaluate model store no_qrels", "no_qrels must hold", "qrels/"),
    ("evaluate model store split", "splits (train, validation), got none", "split?split=NAME"),
    (f"{ON_PAIRS} --split dev", "split must be left out for pairs.jsonl"),
    (f"{ON_PAIRS} --device gpu", "run.device must be auto, cpu", "got 'gpu'"),
    (f"{ON_PAIRS} --set 'measure.report=[\"nGCD@10\"]'", "measure.report", "'nGCD@10'"),
    # Baselines.
    (f"{ON_PAIRS} --baseline other", "stored by the baseline other too", "--baseline-store DIR"),
    (f"{ON_PAIRS} --baseline-store store", "--baseline-store", "got store alone"),
    (f"{ON_PAIRS} --baseline model --baseline-store store", "--baseline-store store must serve a data set"),
    (f"{ON_PAIRS} --fail-on worse", "--fail-on worse", "--baseline MODEL"),
    (f"{ON_PAIRS} --fail-on better", "--fail-on", "'better'", "'undecided'"),
    # Retention sets.
    (f"{ON_PAIRS} --retain store", "--retain", "STORE and DATA", "got store"),
    (f"{ON_PAIRS} --retain=store", "--retain takes two words", "got store"),
    (f"{ON_PAIRS} --retain store ''", "--retain takes two words", "got store ''"),
    (f"{ON_PAIRS} --retain nowhere pairs.jsonl", "nowhere must be a store"),
    (f"{ON_PAIRS} --unlabelled pairs.jsonl", "--unlabelled takes two words, DATA and FILE"),
    (f"{ON_PAIRS} --unlabelled pairs.jsonl pairs.jsonl", "--unlabelled must come with --baseline"),
    (
        f"{ON_PAIRS} --baseline model --unlabelled law.csv pairs.jsonl",
        "--unlabelled",
        "got law.csv",
        "pairs.jsonl",
    ),
    (
        f"{ON_PAIRS} --baseline model --unlabelled pairs.jsonl empty.jsonl",
        "empty.jsonl must hold at least one",
    ),
    (f"{ON_PAIRS} --baseline model --unlabelled pairs.jsonl none.txt", "none.txt must exist"),
    (
        f"{ON_PAIRS} --baseline model --unlabelled pairs.jsonl law.csv",
        'law.csv:2 must have a column "query"',
    ),
    (f"{ON_PAIRS} --baseline model --unlabelled pairs.jsonl pairs.jsonl", "neither judged nor trained on"),
    (
        f"{ON_PAIRS} --retain store pairs.jsonl",
        "--retain must be another data set than the target",
        "pairs.jsonl",
    ),
    (
        f"{ON_PAIRS} --retain store reordered.jsonl --baseline model",
        "--retain must be another data set than pairs.jsonl",
        "11 of the 21 rows of reordered.jsonl",
    ),
    (
        f"{ON_PAIRS} --retain store corpus.jsonl --retain store corpus.jsonl",
        "--retain must",
        "corpus.jsonl twice",
        "leave one out",
    ),
    (
        "evaluate model store judged --split test --retain store judged",
        "--retain must be another data set than the target",
        "judged for both",
    ),
    (
        "evaluate model store 'two.jsonl?query=en' --retain store 'two.jsonl?query=en'",
        "--retain must be another data set than the target",
    ),
    (f"{ON_PAIRS} --retain store law.csv", 'law.csv:1: must have "query", "positive"', "?NAME=COLUMN"),
    (
        f"{ON_PAIRS} --retain store 'law.csv?query=frage'",
        '"frage" (query), "positive"',
        'got "frage", "dokument"',
    ),
    (
        f"{ON_PAIRS} --retain store 'law.csv?query=frage&positive=antwort'",
        '"antwort" (positive)',
        'got "frage", "dokument"',
    ),
    (f"{ON_PAIRS} --retain store 'law.csv?frage=query'", 'got "frage=query"'),
    # Where the evaluation goes.
    *(
        (f"{ON_PAIRS} --out {out}", "--out must be", f"{out} is a {out}", "choose another")
        for out in ("job", "store", "model")
    ),
    (f"{ON_PAIRS} --out foreign", "--out must", "undamaged evaluation", "foreign"),
    (f"{ON_PAIRS} --out notes", "--out must be", "notes holds other files", "choose"),
]
SUITE: list[Refused] = [
    ("evaluate --suite sts.toml", "at least one model must be given"),
    ("evaluate model --suite none.toml", "none.toml must be a TOML file", "got no such file"),
    ("evaluate model --suite mteb-nine", "got mteb-nine", "mteb-eight?"),
    (f"{ON_STS} --split test", "--split has no effect with --suite"),
    (f"{ON_STS} --retain a b", "--retain has no effect with --suite"),
    ("evaluate --suite sts.toml --run job1", "--run has no effect with --suite"),
    (f"{ON_STS} --baseline small", "suite.baseline must", "got small", "are model"),
    (f"{ON_STS} --set 'measure.report=[\"nDGC\"]'", "measure.report must", "ir-measures"),
    ("evaluate nowhere --suite sts.toml", "MODEL must be a directory", "got nowhere"),
    ("evaluate bm25:klingon --suite sts.toml", "language of stems must", "got klingon"),
    ("evaluate model notes --suite sts.toml", "notes must be the directory of a model"),
    ("evaluate model suite.toml --suite sts.toml", "MODEL must be a directory", "got suite.toml"),
]
SEARCH: list[Refused] = [
    ("search hello store --model model", "STORE QUERY"),
    ("search store '' --model model", "QUERY must not be empty"),
    ("search store 'a\udcff' --model model", "QUERY must be UTF-8 text", "character 2"),
    ("search store hello there --model model", "unexpected extra argument", "there"),
    ("search store hello --model model -k 0", "-k", "whole number >= 1, got 0"),
    ("search store hello --model other", "store was built by another encoder", "weights"),
    ("search store hello --model job", "job is a job that is not finished", "--resume"),
    ("search damaged hello --model model", "damaged/vectors.npy must be undamaged", "rebuild the store"),
]
ADVISE: list[Refused] = [
    ("advise store model pairs.jsonl", "MODEL STORE DATA"),
    ("advise model small_store pairs.jsonl", "width 16"),
    ("advise model bare_store pairs.jsonl", "width 9"),
    ("advise model store few.jsonl", "few must hold at least 10 queries", "got 9 of 9"),
    (f"{ADVISED} --retain store few.jsonl", "few must hold at least 10", "got 9 of 9"),
    ("advise model store empty.jsonl", "empty.jsonl must hold at least one row"),
    ("advise model store absent.jsonl", "d20", "absent.jsonl:16"),
    ("advise model store split", "splits (train, validation), got none", "split?split=NAME"),
    (f"{ADVISED} --retain store", "--retain takes two words"),
    (f"{ADVISED} --retain store pairs.jsonl", "--retain must be another data set than the target"),
    (
        f"{ADVISED} --retain store copy.jsonl",
        "--retain must be another data set than pairs.jsonl",
        "20 of the 20 rows of copy.jsonl",
    ),
    (f"{ADVISED} --set advise.queries=9", "advise.queries must be", "10"),
    (f"{ADVISED} --set run.device=tpu", "run.device must be auto, cpu", "'tpu'"),
    (f"{ADVISED} --out notes", "--out must be", "notes holds other files"),
]
TRAIN: list[Refused] = [
    ("train", "Missing", "adiabat train --help"),
    ("train ''", "RUN.toml must not be empty"),
    ("train none.toml", "none.toml", "must be a TOML file of settings"),
    ("train bad.toml", "bad.toml must be TOML", "line 1"),
    ("train notes", "must be a readable TOML file", "notes"),
    ("train typos.toml", "3 faults", "job.data?", "data.validation_fraction?"),
    ("train run.toml --set train.los=pair", "unknown key train.los", "train.loss?"),
    ("train no_model.toml", "job.model must be given", "--set job.model=..."),
    ("train no_model.toml --dry-run", "job.model must be given"),
    ("train run.toml --out=", "--out must have a value"),
    ("train run.toml --set job.data=pair.jsonl", "pair.jsonl must exist", "pairs.jsonl"),
    ("train run.toml --set job.model=no-such/model", "job.model must be a directory", "no-such/model"),
    ("train run.toml --device cuda:63", "run.device must be a device of this machine", "'cuda:63'"),
    ("train run.toml --out notes", "--out must be a new or empty directory", "notes"),
    ("train run.toml --out job", "job holds a job already", "--resume"),
    ("train run.toml --resume --out job", "--resume must continue the job in job with its settings"),
]
SPACE: list[Refused] = [
    ("space store model pairs.jsonl", "MODEL STORE QUERIES"),
    ("space small store pairs.jsonl", "store was built by another encoder than small's: "),
    ("space model store one.jsonl", "at least 20 different positives, got 1 of"),
    ("space model store grid.jsonl", "QUERIES must be", "got the language grid grid.jsonl"),
    ("space model store split", "splits (train, validation), got none", "split?split=NAME"),
    (f"{SPACED} --baseline small", "must be stored by the baseline small too"),
    (
        f"{SPACED} --baseline-store small_store",
        "--baseline-store must come with --baseline",
        "got small_store alone",
    ),
    (
        f"{SPACED} --baseline model --baseline-store small_store",
        "--baseline-store small_store must serve a data set",
    ),
]
SAFE_RATE: list[Refused] = [
    (f"{RATED} --probes nowhere.txt", "nowhere.txt must exist, got no such file"),
    (f"{RATED} --set rate_search.low=1", "rate_search.low must", "got 1 and 1e-05"),
    (f"{RATED} --set rate_search.count=1", "rate_search.count must be >= 2, got 1", "10"),
    (f"{RATED} --set rate_search.count=100000000", "rate_search.count must be <= 1000, got 100000000"),
    (f"{RATED} --set guard.limit=loud", "guard.limit must", '> 0, or "noise"', "'loud'"),
    *(
        (f"{RATED} --set '{assignment}'", *("searches for tune.learning_rate", "by --set", "leave it out"))
        for assignment in (
            "tune.learning_rate=1e-6",
            "tune . learning_rate=1e-6",
            "tune={learning_rate=1e-6}",
        )
    ),
    (f"{RATED} --set guard=false", "guard must be on", "drift, got false"),
    (
        f"{RATED} --set guard.probes=some.txt --probes other.txt",
        "guard.probes must be given once",
        "some.txt by --set",
        "other.txt by --probes",
    ),
    (f"{RATED} --set tune.method=lora --set tune.method.rank=1000", "rank must be <= 32", "got 1000"),
    (f"{RATED} --set 'tune.freeze=[\"nothing\"]'", '"nothing" must'),
    (f"{RATED} --set tune.negatives.difficulty=9", "at least tune.negatives.difficulty = 9 negatives"),
]
SCALING: list[Refused] = [
    ("scaling gone.toml", "gone.toml must be a TOML file"),
    (
        "scaling scaling.toml --engine steam",
        "scaling.toml and --set: scaling.engine must",
        "'ray'",
        "'steam'",
    ),
    ("scaling scaling.toml --set methods.prompt=true", "unknown key methods.prompt"),
    ("scaling scaling.toml --set scaling.budgets=[0.0]", "scaling.budgets must be > 0, got 0"),
    ("scaling scaling.toml --set train.budget_flops=1e9", "train.budget_flops must be left out"),
    (
        "scaling scaling.toml --set 'models=[{model=\"model\"}]'",
        "models.pretraining_rate of model must be given without rates.full",
    ),
]
PLAN: list[Refused] = [
    ("plan", "plan.budget must be given", "--budget 1e17"),
    ("plan --budget much", "plan.budget must be a number", "'much'"),
    ("plan --budget 1e15 --runs gone", "plan.runs must", "runs.parquet, got gone"),
    ("plan --budget 1e15 --memory 24", "plan.memory must", '"24GiB"', "got '24'"),
    ("plan --budget 1e15 --runs x --model demo", "plan.models must be left out with plan.runs"),
    ("plan --budget 1e15 --model model --out model", "--out must be", "model is a model"),
    ("plan --budget 1e15 --model gone", "plan.models must be a directory", "got gone"),
]
SWEEP: list[Refused] = [
    ("sweep sweep.toml --set grid.tune.learning_rat=[1.0]", "sweep.toml and --set: ", "tune.learning_rate?"),
    ("sweep sweep.toml --set job.store=nowhere", "nowhere must be a store"),
    ("sweep sweep.toml --set job.data=nowhere.jsonl", "nowhere.jsonl must exist"),
    ("sweep sweep.toml --set 'sweep.targets=[\"mine\"]'", "sweep.targets must", "got mine", "are test"),
    ("sweep sweep.toml --set probes.data=nowhere.txt", "nowhere.txt must exist, got no such file"),
    ("sweep sweep.toml --set 'sweep.seeds=[0, 0]'", "sweep.seeds must", "each seed once"),
]
DISTILL: list[Refused] = [
    ("distill static model --out=", "--out must have a value"),
    ("distill static gone", "MODEL must be a directory", "got gone"),
    ("distill static model --out model", "--out must be a new or empty directory", "model holds other files"),
    ("distill static model --dims 99", "static.reduction.dims must be at most 32", "got 99"),
    ("distill static model --dims few", "static.reduction.dims must be a whole number", "'few'"),
    ("distill static model --sif 2", "static.weighting.a must be < 1, got 2"),
    ("distill static model --vocabulary gone.txt", "static.vocabulary must", "got gone.txt"),
    ("distill static model --corpus gone.jsonl", "gone.jsonl must exist"),
    ("distill pair small model", "32, got 16", "--set distill.width=projection"),
    ("distill pair small model --out model", "--out must be a new or empty directory"),
]
TAUGHT: list[Refused] = [
    ("distill fit --texts corpus.jsonl", "distill.teachers must be given", "distill.student must be given"),
    ("distill fit --teacher model --student small", "data.texts must be given", "--texts or --queries"),
    (f"{FITTED} --texts gone.jsonl", "gone.jsonl must exist"),
    (f"{FITTED} --texts corpus.jsonl --set train.loss=hinge", "train.loss must be", "'hinge'"),
    (f"{TRANSLATED} gone.en,gone.de", "gone.en must exist"),
    (f"{TRANSLATED} corpus.jsonl", 'corpus.jsonl:1: must have a text in "en"'),
    (f"{TRANSLATED} parallel.jsonl --languages fr", "languages must be of the parallel texts (de), got fr"),
]
ABLATE: list[Refused] = [
    ("distill ablate model", "ablate.suite must be given"),
    ("distill ablate model --suite gone.toml", "gone.toml must exist"),
    ("distill ablate model --suite faulty.toml", "task likeness: pairs.jsonl:1 must have", '"score" (score)'),
    (f"{ABLATED} --texts gone.jsonl", "gone.jsonl must exist"),
    (f"{ABLATED} --set static.weighting.corpus=gone.jsonl", "gone.jsonl must exist"),
    (f"{ABLATED} --set static.vocabulary=gone.txt", "static.vocabulary must", "gone.txt"),
    (f"{ABLATED} --set static.reduction.dims=99", "dims must be at most 32"),
    (f"{ABLATED} --set static.pooling=last", "static.pooling must be left out"),
    (f"{ABLATED} --out model", "--out must be a new or empty directory"),
]
OTHER: list[Refused] = [
    ("compare pairs.jsonl store", "--qrels must", "got none for pairs.jsonl"),
    ("inspect split", "splits (train, validation), got none", "split?split=NAME"),
    ("mine split corpus.jsonl --out mined.jsonl", "splits (train, validation), got none", "split?split=NAME"),
]
NO_FILE = "must be a file or a folder, got a device, pipe or socket"
PIPES: list[Refused] = [
    (command, file, NO_FILE)
    for command, file in (
        (f"{TUNED} --config pipe.toml", "pipe.toml"),
        ("train pipe.toml", "pipe.toml"),
        ("evaluate model --suite pipe.toml", "pipe.toml"),
        ("embed model corpus.jsonl --import vectors.npy --ids pipe.txt", "pipe.txt"),
        ("embed model corpus.jsonl --import vectors.npy --ids pipe.npy", "pipe.npy"),
        ("embed model corpus.jsonl --import vectors.npy --ids pipe.json", "pipe.json"),
        ("embed model corpus.jsonl --import pipe.npy --ids ids.txt", "pipe.npy"),
        (f"{ON_PAIRS} --retain store pipe.jsonl", "pipe.jsonl"),
        (f"{TUNED} --set guard.probes=pipe.jsonl", "pipe.jsonl"),
        ("compare pairs.jsonl corpus.jsonl --qrels pipe.json", "pipe.json"),
        ("tune piped_config store pairs.jsonl", "piped_config/config.json"),
        ("search store hello --model piped_tokenizer", "piped_tokenizer/tokenizer.json"),
        ("search piped_manifest hello --model model", "piped_manifest/manifest.json"),
        ("distill static model --vocabulary pipe.txt", "pipe.txt"),
    )
]
REFUSED = [
    *(*EMBED, *IMPORT, *TUNE, *EVALUATE, *SUITE, *SEARCH, *ADVISE, *TRAIN, *SPACE, *SAFE_RATE, *SCALING),
    *(*PLAN, *SWEEP, *DISTILL, *TAUGHT, *ABLATE, *OTHER, *PIPES),
]
WITHOUT_OUT = ("search", "compare", "plan", "inspect")
"""Verbs that need no place for what they find."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    write_mistakes(here)
    return here


def words_of(command: str) -> list[str]:
    words = shlex.split(command)
    if words[0] == "tune":
        # Without the search for a rate, which comes before the run.
        words += ["--recipe", "paper"]
    if len(words) == 1 or words[0] in WITHOUT_OUT or any(word.startswith("--out") for word in words):
        return words
    return [*words, "--out", "new"]


@pytest.mark.parametrize("refused", REFUSED, ids=[command for command, *_ in REFUSED])
def test_a_mistake_gets_one_line_and_leaves_nothing_behind(refused: Refused, run: Run, world: Path) -> None:
    command, *facts = refused
    before = listing(world)
    assert_refused(run(*words_of(command)), *facts)
    assert listing(world) == before


def test_a_job_without_a_place_is_refused(run: Run) -> None:
    assert_refused(run("train", "run.toml"), "job.out must be given")
