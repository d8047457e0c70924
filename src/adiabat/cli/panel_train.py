"""Training and its data: train, mine, label, inspect; and distill static, fit, multilingual, pair, ablate."""

from pathlib import Path

import typer

import adiabat
from adiabat.api.call import say
from adiabat.cli.options import (
    AS_JSON,
    CONFIG,
    DEVICE,
    EXIST_OK,
    RESUME,
    SEED,
    SET,
    SPLIT,
    USUAL,
    Given,
    answer,
    argument,
    in_json,
    number,
    option,
    rank,
    required,
    setting,
    show,
    switch,
    told_once,
    verb,
    writing_output,
)
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.surroundings import console_size
from adiabat.core.text import amount, counted


@verb(
    argument(
        "RUN.toml", "Model, data, towers and loss; job.model and job.data are required.", Path, name="config"
    ),
    setting("job.out", "--out", "JOB", "Directory of the job (job.out); afterwards a MODEL.", Path),
    RESUME,
    switch("--dry-run", "Print parameters, FLOPs, memory and time, and train nothing."),
    number(
        "train.budget_seconds",
        "--budget-time",
        "TIME",
        "Time limit of the whole command, such as 90min or 8h (train.budget_seconds).",
    ),
    number("train.budget_flops", "--budget-flops", "N", "Training budget in FLOPs (train.budget_flops)."),
    SET,
    SEED,
    DEVICE,
    EXIST_OK,
    AS_JSON,
)
def train(given: Given) -> None:
    """Train both towers of a dual encoder on pairs of texts."""
    from adiabat.config.dual_training import TrainSettings

    with told_once():
        settings = given.settings(TrainSettings)
        from adiabat.api.train_verb import check_train

        if given.dry_run and given.exist_ok:
            raise ConfigError("--exist-ok is about the job in --out, and --dry-run runs none; leave one out")
        # With --exist-ok, the function first looks for the result of the same call.
        if not given.exist_ok:
            check_train(settings, resume=given.resume, dry_run=given.dry_run)

    if given.dry_run:
        # Of several processes, the main one answers.
        if not rank():
            estimate = adiabat.estimate(settings=settings)
            answer(estimate.to_json() if given.json else estimate.summary())
        return
    result = adiabat.train(settings=settings, resume=given.resume, exist_ok=given.exist_ok)
    if result is not None:
        show(result, given, settings.job.out)


@verb(
    argument("DATA", "Queries with positives."),
    argument("CORPUS", "Documents to take negatives from, or a store that keeps its texts."),
    required("--out", "FILE", "File of the examples with negatives: .jsonl, .jsonl.gz or .jsonl.zst."),
    setting(
        "mine.source",
        "--source",
        None,
        "Source of candidates: bm25, dense or fused (the last two need --model). Default: bm25.",
    ),
    option("--model", "MODEL", "Model whose towers rank documents by vectors."),
    option("--store", "STORE", "Vectors of CORPUS by that model.", Path),
    option("--index", "DIR", "Directory that keeps the BM25 index for other runs.", Path),
    SPLIT,
    *USUAL,
)
def mine(given: Given) -> None:
    """Find hard negatives for queries, and drop those that are likely answers."""
    from adiabat.config.dataset_settings import MineSettings

    settings = given.settings(MineSettings)

    mined = adiabat.mine(
        given.data,
        given.corpus,
        given.out,
        model=given.model,
        store=given.store,
        index=given.index,
        settings=settings,
        exist_ok=given.exist_ok,
    )
    for line in mined.lines:
        say(line)
    answer(mined.report if given.json else str(mined.out))


@verb(
    argument("DATA", "Queries with positives."),
    argument("STORE", "Document vectors, with texts."),
    required("--reranker", "MODEL", "Cross-encoder that scores documents.", str),
    required("--out", "FILE", "File of the examples with scores: .jsonl, .jsonl.gz or .jsonl.zst."),
    option("--model", "MODEL", "Model of the store. Default: the one that the store names."),
    number(
        "label.depth", "--depth", "N", "Top documents of the store, and of BM25 (label.depth). Default: 10."
    ),
    SPLIT,
    CONFIG,
    SET,
    DEVICE,
    EXIST_OK,
    AS_JSON,
)
def label(given: Given) -> None:
    """Score documents of each query by a cross-encoder, for tune.loss=listwise to learn from."""
    from adiabat.config.dataset_settings import LabelSettings

    settings = given.settings(LabelSettings)

    labelling = adiabat.label(
        given.data,
        given.store,
        given.out,
        reranker=given.reranker,
        model=given.model,
        settings=settings,
        exist_ok=given.exist_ok,
    )
    for line in labelling.lines:
        say(line)
    answer(labelling.report if given.json else str(labelling.out))


@verb(
    argument("DATA", "Examples, a corpus, a BEIR folder or a language grid."),
    option("--model", "MODEL", "Count tokens by the tokenizer of each tower. Default: words and characters."),
    option(
        "--store", "STORE", "Documents of --model: say which improvement of it the queries could show.", Path
    ),
    SPLIT,
    CONFIG,
    SET,
    SEED,
    AS_JSON,
)
def inspect(given: Given) -> None:
    """Profile a data set: lengths, duplicates, languages, topics, examples, and faults by line."""
    from adiabat.config.dataset_settings import InspectSettings

    settings = given.settings(InspectSettings)
    from rich.console import Console

    from adiabat.profiling.profile_view import inspection_panel

    profile = adiabat.inspect(given.data, model=given.model, store=given.store, settings=settings)
    if given.json:
        answer(profile.to_json())
    else:
        # On stdout, so that it can be saved or paged.
        with writing_output():
            Console(highlight=False, **console_size()).print(inspection_panel(profile))
    # The profile is printed first: it says where the faults are.
    if profile.faults:
        raise DataError(
            f"{given.data} has {counted(len(profile.faults), 'kind')} of fault, listed above; "
            "other verbs refuse them; correct the data"
        )


distill = typer.Typer(no_args_is_help=True, help="Train small or multilingual students of a teacher.")

# --- Students ---

TEACHER = argument("MODEL", "Teacher.", name="teacher")
TOWER_TEXT = "Tower of the teacher to learn from, query or document; required if they differ."
STATIC_TOWER = setting("static.tower", "--tower", None, TOWER_TEXT)
STUDENT_OPTIONS = (
    setting("distill.teachers", "--teacher", "MODEL", "Teacher (distill.teachers); repeatable.", list[str]),
    setting(
        "distill.student", "--student", "MODEL", "Model to start from (distill.student); it has one tower."
    ),
    setting("distill.out", "--out", "JOB", "Directory of the job (distill.out); afterwards a MODEL.", Path),
    setting("distill.tower", "--tower", None, TOWER_TEXT),
)
"""First options of the verbs that train a student."""


@distill.command()
@verb(
    TEACHER,
    required("--out", "DIR", "Directory of the static model."),
    STATIC_TOWER,
    number(
        "static.reduction.dims", "--dims", "N", "Width of a vector (static.reduction.dims). Default: 256."
    ),
    setting("static.pooling", "--pooling", None, "Token state to take: mean, token, first or last."),
    setting("static.weighting", "--weighting", None, "Weights of tokens: none, zipf, sif or tfidf."),
    number("static.weighting.a", "--sif", "A", "a of the SIF weight a / (a + p). Default: 1e-4."),
    setting(
        "static.weighting.corpus",
        "--corpus",
        None,
        "Corpus in which tokens are counted (static.weighting.corpus).",
    ),
    setting(
        "static.vocabulary",
        "--vocabulary",
        "FILE",
        "Words to add to the vocabulary, one per line.",
        Path,
    ),
    *USUAL,
)
def static(given: Given) -> None:
    """Make a model with one vector per token: no GPU needed; model2vec and sentence-transformers load it."""
    from adiabat.config.distillation import DistillStaticSettings

    settings = given.settings(DistillStaticSettings)

    result = adiabat.distill_static(given.teacher, given.out, settings=settings, exist_ok=given.exist_ok)
    size = (
        f"{result.tokens:,} tokens of {result.dims} numbers, {result.kept:.1%} "
        f"of the variance, {amount(result.size)}"
    )
    say(f"{size}, in {result.seconds:.1f} s")
    answer(in_json(result) if given.json else str(given.out))


@distill.command()
@verb(
    *STUDENT_OPTIONS,
    setting("data.texts", "--texts", "CORPUS", "Documents to train on (data.texts); repeatable.", list[str]),
    setting(
        "data.queries",
        "--queries",
        "DATA",
        "Examples whose queries are trained on (data.queries); repeatable.",
        list[str],
    ),
    RESUME,
    *USUAL,
)
def fit(given: Given) -> None:
    """Train a student to reproduce its teachers' vectors of your own texts."""
    from adiabat.config.distillation import FitSettings

    settings = given.settings(FitSettings)

    result = adiabat.distill_fit(settings=settings, resume=given.resume, exist_ok=given.exist_ok)
    show(result, given, settings.distill.out)


@distill.command()
@verb(
    *STUDENT_OPTIONS,
    setting(
        "data.parallel",
        "--parallel",
        "FILE",
        "Table with a text for each language, or two text files: FILE.en,FILE.de; repeatable.",
        list[str],
    ),
    setting("data.source", "--source", "en", "Language of the teachers' texts. Default: en."),
    option("--languages", "de,fr", "Languages to learn. Default: all."),
    RESUME,
    *USUAL,
)
def multilingual(given: Given) -> None:
    """Teach a student further languages: its vectors of translations approach the teachers' vectors of the
    texts.
    """
    from adiabat.config.distillation import MultilingualSettings

    # One option with commas, since a repeatable one would read worse in examples.
    named = [name.strip() for name in (given.languages or "").split(",")]
    settings = given.settings(MultilingualSettings, {"data.languages": [name for name in named if name]})

    result = adiabat.distill_multilingual(settings=settings, resume=given.resume, exist_ok=given.exist_ok)
    show(result, given, settings.distill.out)


@distill.command()
@verb(
    argument("QUERY_MODEL", "Model of the query tower, such as a fitted static model.", name="query"),
    argument(
        "DOCUMENT_MODEL",
        "Model of the document tower; its stores can be searched with the pair.",
        name="document",
    ),
    required("--out", "DIR", "Directory of the pair, a MODEL."),
    EXIST_OK,
)
def pair(given: Given) -> None:
    """Combine a small query tower with the document tower that made an index."""
    towers = adiabat.distill_pair(given.query, given.document, given.out, exist_ok=given.exist_ok)
    sizes = [
        sum(weights.numel() for weights in tower.parameters()) for tower in (towers.query, towers.document)
    ]
    say(f"{sizes[0]:,} parameters embed queries, {sizes[1]:,} embed documents")
    answer(str(given.out))


@distill.command()
@verb(
    TEACHER,
    STATIC_TOWER,
    setting("ablate.suite", "--suite", "SUITE", "TOML file of tasks, or a suite by name (ablate.suite)."),
    setting("ablate.out", "--out", "DIR", "Directory of models and result (ablate.out).", Path),
    setting(
        "ablate.texts",
        "--texts",
        "CORPUS",
        "Texts for the step `fit` (ablate.texts); repeatable.",
        list[str],
    ),
    setting(
        "ablate.queries", "--queries", "DATA", "Examples whose queries are added; repeatable.", list[str]
    ),
    setting(
        "ablate.pairs", "--pairs", "DATA", "Queries with documents, for the step `pairs` (ablate.pairs)."
    ),
    RESUME,
    *USUAL,
)
def ablate(given: Given) -> None:
    """Make a static model step by step, and measure each step on a suite."""
    from adiabat.config.distillation import AblateSettings

    settings = given.settings(AblateSettings)

    result = adiabat.distill_ablate(
        given.teacher, settings=settings, resume=given.resume, exist_ok=given.exist_ok
    )
    show(result, given, result.page)
