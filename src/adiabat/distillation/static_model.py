"""A static model from a teacher: a vector per token, and the mean of tokens as a text's embedding (van Dongen
and Tulkens, model2vec).
"""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from safetensors.numpy import save
from transformers import PreTrainedTokenizerFast

from adiabat.config.distillation import USUAL_DIMS, DistillStaticSettings, StaticSection, Weighting
from adiabat.config.shared import EncoderSection
from adiabat.core.disk import clear, make_folder, remove_empty
from adiabat.core.errors import DataError, JobError, ModelError
from adiabat.core.files import sole_writer, whole_folder, write_text, write_together, writing_to
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.core.wording import assignment, option
from adiabat.data.corpora import training_texts
from adiabat.distillation.distill_checks import PASSED
from adiabat.distillation.vocabulary import (
    Counts,
    Reduced,
    Vocabulary,
    Word,
    count_tokens,
    read_words,
    reduced,
    require_dims,
    token_vectors,
    vocabulary_of,
)
from adiabat.dual_encoder.pair_data import contents_of
from adiabat.models.device import device_name, device_of
from adiabat.models.encoder import Encoder
from adiabat.models.former_versions import OLDEST, stamp
from adiabat.models.json_files import ROOT_FILE, json_text
from adiabat.models.model_names import load
from adiabat.models.model_paths import Model, name_of
from adiabat.models.saving import save as save_model
from adiabat.models.static import TOKENIZER, WEIGHTS, require_saveable, unknown_id
from adiabat.models.towers import DualEncoder, side_of
from adiabat.results.distillation_result import DistillResult
from adiabat.results.record import write_result

Weights = Float[np.ndarray, " v"]
"""The weight of each token."""


def by_rank(rows: int) -> Weights:
    """Model2Vec's first weighting ("Basic"), by Zipf's law: ``ln(1 + r)`` for the token of rank ``r``
    from 0.
    """
    return np.log1p(np.arange(rows, dtype=np.float64))


def by_count(counts: Counts) -> Weights:
    """`by_rank`, with the ranks of tokens in a corpus."""
    weights = np.empty(len(counts))
    weights[np.argsort(-counts, kind="stable")] = by_rank(len(counts))
    return weights


def zipf(rows: int) -> Weights:
    """Expected token frequencies by Zipf's law, as in model2vec: a token's share falls with its rank.

    ``p_r = (1 / (r + 2)) / sum_s 1 / (s + 2)`` for ranks from 0.
    """
    shares = 1.0 / np.arange(2, rows + 2)
    normalised: Weights = shares / shares.sum()
    return normalised


def counted(counts: Counts) -> Weights:
    """Expected token frequencies from counts in a corpus, with one added to each so that none is 0."""
    smoothed = counts.astype(np.float64) + 1.0
    shares: Weights = smoothed / smoothed.sum()
    return shares


def sif(shares: Weights, coefficient: float) -> Weights:
    """Smooth inverse frequency, ``a / (a + p)``, of Arora et al. 2017: a smaller coefficient gives frequent
    tokens less weight.
    """
    return coefficient / (coefficient + shares)


def inverse_documents(containing: Counts, documents: int) -> Weights:
    """Inverse document frequency as smoothed by scikit-learn, ``ln((1 + n) / (1 + df)) + 1``, for a TF-IDF
    mean over tokens.

    van Dongen and Tulkens, model2vec, found it worse than SIF.
    """
    return np.log((1.0 + documents) / (1.0 + containing)) + 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Distilled:
    """A static model in the making.

    `kept` is the share of the variance of the teacher's token vectors that remains, `counted` the number of
    texts in which tokens were counted, 0 if token ranks were used instead.
    """

    vocabulary: Vocabulary
    vectors: Reduced
    weights: Weights
    kept: float
    counted: int


def distill(
    teacher: Encoder, settings: DistillStaticSettings, words: Sequence[Word], folder: Path, watch: Watch
) -> Distilled:
    """Pass every token of a vocabulary through a teacher, reduce the vectors, and weight them.

    A text's vector is the mean of its tokens' rows, so a weight that is multiplied into a row weights the
    token in every text.

    Args:
        words: Words that are added to the teacher's tokens.
        folder: Where the teacher's vectors are saved, so that an interrupted call resumes.
    """
    section = settings.static
    # Check first: too many directions, or a corpus without texts, must not be noticed only after long work.
    vocabulary, dims = rows_and_dims(teacher, section, words)
    if vocabulary.known:
        watch.note(f"{len(vocabulary.known):,} of {len(words):,} words are tokens of the teacher already")
    weights, texts_counted = _weights(vocabulary, section.weighting, watch)
    if (unknown := unknown_id(vocabulary.tokenizer)) is not None:
        # The unknown token weighs nothing: model2vec leaves it out of a text, and sentence-transformers would
        # count it.
        weights[unknown] = 0.0
    vectors = token_vectors(
        teacher, vocabulary.sequences, pooling=section.pooling, folder=folder, watch=watch
    )
    if section.reduction.kind == "none":
        return Distilled(vocabulary, vectors, weights, 1.0, texts_counted)
    directions, variance = reduced(
        vectors, dims, how=section.reduction.kind, seed=settings.run.seed, watch=watch
    )
    return Distilled(vocabulary, directions, weights, variance, texts_counted)


def rows_and_dims(teacher: Encoder, section: StaticSection, words: Sequence[Word]) -> tuple[Vocabulary, int]:
    """The rows of a static model, and their number of dimensions.

    A reduction of the vectors cannot have more dimensions than they have, nor as many as there are rows.
    """
    if not isinstance(teacher.tokenizer, PreTrainedTokenizerFast):
        raise ModelError(
            f"a teacher must have a fast tokenizer, got a {type(teacher.tokenizer).__name__}; "
            "take another model"
        )
    vocabulary = vocabulary_of(teacher.tokenizer, words=words, without=section.without)
    dims = section.reduction.dims or min(USUAL_DIMS, teacher.width)
    if section.reduction.kind != "none":
        require_dims(dims, len(vocabulary.tokens), teacher.width)
    return vocabulary, dims


def _weights(vocabulary: Vocabulary, weighting: Weighting, watch: Watch) -> tuple[Weights, int]:
    """The weight of each token, and the number of texts in which tokens were counted; 0 if their ranks stand
    for counts: trained vocabularies begin with frequent tokens.
    """
    rows = len(vocabulary.tokens)
    if weighting.kind == "none":
        return np.ones(rows), 0
    if weighting.corpus is None:
        weights = sif(zipf(rows), weighting.a) if weighting.kind == "sif" else by_rank(rows)
        return weights, 0
    texts = (document.text for document in training_texts(weighting.corpus))
    counts = count_tokens(vocabulary.tokenizer, texts, watch=watch)
    if not counts.times.any():
        told = f"static.weighting.corpus must hold texts with tokens, got {counts.texts:,} texts without"
        raise DataError(f"{told}; give another, or leave it out")
    if weighting.kind == "zipf":
        return by_count(counts.times), counts.texts
    if weighting.kind == "sif":
        return sif(counted(counts.times), weighting.a), counts.texts
    return inverse_documents(counts.containing, counts.texts), counts.texts


LONGEST = 1_000_000
"""Token limit in the tokenizer's file; model2vec writes it for models without a limit."""


def save_static(distilled: Distilled, section: StaticSection, folder: Path, *, teacher: str) -> None:
    """Write the files of a model that both libraries load with equal embeddings; `list_modules` completes
    it.

    sentence-transformers reads the table and the tokenizer, model2vec ``config.json`` beside them.
    """
    root = {"__version__": stamp(OLDEST), "similarity_fn_name": "cosine", "prompts": {}}
    files: dict[str, str | bytes] = {
        WEIGHTS: save(_tensors(distilled, section)),
        TOKENIZER: distilled.vocabulary.tokenizer.to_str(pretty=True),
        "config.json": json_text(_config(distilled, section, teacher)),
        ROOT_FILE: json_text(root),
    }
    write_together({folder / name: content for name, content in files.items()})


def list_modules(section: StaticSection, folder: Path) -> None:
    """Write the list of modules, which completes a model directory, after all other files."""
    modules = [{"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}]
    if section.normalize:
        with writing_to(folder):
            make_folder(folder / "1_Normalize")
        modules.append(
            {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"}
        )
    write_text(json_text(modules), folder / "modules.json")


def _tensors(distilled: Distilled, section: StaticSection) -> dict[str, np.ndarray]:
    """Weights are multiplied into the rows; for int8 they are stored separately, with the scale of each
    row.
    """
    if section.dtype != "int8":
        weighted = distilled.vectors * distilled.weights[:, None]
        return {"embeddings": _narrowed(weighted, section.dtype)}
    # Symmetric quantisation by row: a row's largest number becomes 127 or -127; a row of zeros has no scale.
    scales = np.abs(distilled.vectors).max(axis=1) / 127.0
    # Zeros are divided by 1 instead of 0.
    divisors = np.where(scales, scales, 1.0)
    rows = np.rint(distilled.vectors / divisors[:, None]).astype(np.int8)
    weights = scales * distilled.weights
    return {"embeddings": rows, "weights": weights.astype(np.float32)}


def _narrowed(exact: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers in the type of the file; one that is infinite there is refused."""
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(exact, dtype=dtype)
    if not np.isfinite(rows).all():
        raise DataError(
            f"static.dtype must hold numbers up to {np.abs(exact).max():.3g}, got {dtype}; take float32"
        )
    return rows


def _config(distilled: Distilled, section: StaticSection, teacher: str) -> dict[str, object]:
    """``config.json`` with the keys that model2vec writes, so that it loads the directory as its own."""
    return {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "tokenizer_name": teacher,
        "apply_pca": None if section.reduction.kind == "none" else distilled.vectors.shape[1],
        "sif_coefficient": section.weighting.a if section.weighting.kind == "sif" else None,
        "hidden_dim": distilled.vectors.shape[1],
        "seq_length": LONGEST,
        # Without it, model2vec would truncate texts at 512 tokens.
        "max_length": None,
        "normalize": section.normalize,
        "pooling": section.pooling,
        "embedding_dtype": section.dtype,
    }


def distill_static(
    teacher: Model,
    folder: Path,
    *,
    settings: DistillStaticSettings,
    passed: Path | None = None,
    command: str,
    watch: Watch = SILENT,
) -> DistillResult:
    """Make a static model of a teacher in a directory that is new or empty, or has an interrupted call, which
    resumes.

    The list of modules is written last: a directory with it is complete.

    Args:
        passed: Folder of the teacher's vectors of tokens, which an ablation shares among its models. None
            takes one within the directory, which is removed at the end.
    """
    started = time.monotonic()
    section, notes = settings.static, list[str]()
    words = _words(section)

    def note(sentence: str) -> None:
        """Tell the user, and keep the sentence for the result."""
        notes.append(sentence)
        watch.note(sentence)

    with _directory(folder), sole_writer(folder):
        tower = teaching_tower(teacher, settings)
        kept = folder / PASSED if passed is None else passed
        distilled = distill(tower, settings, words, kept, Watch(note, watch.progress))
        save_static(distilled, section, folder, teacher=name_of(teacher))
        result = DistillResult(
            title=f"A static model of {_subject(name_of(teacher), section)}",
            command=command,
            created=now(),
            seconds=time.monotonic() - started,
            seed=settings.run.seed,
            versions=versions(device_name(device_of(settings.run.device))),
            teacher=name_of(teacher),
            tokens=len(distilled.vocabulary.tokens),
            added=distilled.vocabulary.added,
            dims=distilled.vectors.shape[1],
            kept=distilled.kept,
            counted=distilled.counted,
            size=(folder / WEIGHTS).stat().st_size,
            settings=settings.recorded(),
            inputs=_inputs(tower, section, words),
            notes=notes,
        )
        write_result(result, folder)
        list_modules(section, folder)
        clear(folder / PASSED)
    return result


def _subject(teacher: str, section: StaticSection) -> str:
    """The teacher in the title, with its tower if that was named."""
    return teacher if section.tower is None else f"the {section.tower} tower of {teacher}"


def teaching_tower(teacher: Model, settings: DistillStaticSettings) -> Encoder:
    """The tower of a teacher that becomes a static model."""
    model = load(teacher, settings=settings.encoder, device=settings.run.device)
    return model.tower(side_of(model, settings.static.tower, usual="document", setting="static.tower"))


@contextmanager
def _directory(folder: Path) -> Iterator[None]:
    """A directory that exists within the block, and is kept afterwards only if it is not empty."""
    try:
        make_folder(folder, parents=True)
    except OSError as fault:
        raise JobError(
            f"{option('out', folder)} could not be made: {fault.strerror}; choose another directory"
        ) from fault
    try:
        yield
    finally:
        remove_empty(folder)


def distill_pair(
    query: Model, document: Model, out: str | Path, *, settings: EncoderSection | None = None
) -> DualEncoder:
    """Save the query tower of one model and the document tower of another as one model.

    The towers keep their weights, so vectors of a store that the document model made stay valid.
    """
    folder = Path(out)
    query_model, document_model = load(query, settings=settings), load(document, settings=settings)
    if query_model.query.width != document_model.document.width:
        raise ModelError(
            f"the query tower of {name_of(query)} must be as wide as the documents of {name_of(document)}, "
            f"{document_model.document.width}, got {query_model.query.width}; fit it with "
            f"{assignment('distill.width', 'projection')}"
        )
    pair = DualEncoder(
        query_model.query,
        document_model.document,
        f"{name_of(query)} beside {name_of(document)}",
        document_model.root,
    )
    for tower in (pair.query, pair.document):
        require_saveable(tower)
    with whole_folder(folder) as making:
        save_model(pair, making)
    return pair


def inputs_of(teacher: str, settings: DistillStaticSettings) -> dict[str, dict[str, str]]:
    """Digests of the teacher, vocabulary and corpus of a static model."""
    section = settings.static
    words = _words(section)
    tower = teaching_tower(teacher, settings)
    rows_and_dims(tower, section, words)
    return _inputs(tower, section, words)


def _words(section: StaticSection) -> list[Word]:
    """The words to add; none without a file of them."""
    return [] if section.vocabulary is None else read_words(Path(section.vocabulary))


def _inputs(tower: Encoder, section: StaticSection, words: Sequence[Word]) -> dict[str, dict[str, str]]:
    """What the result records of its inputs, each by digests of its content: paths may change."""
    inputs = {"teacher": {"weights_sha256": tower.weights_digest()}}
    if section.weighting.corpus is not None:
        files = json.dumps(contents_of([section.weighting.corpus]))
        inputs["corpus"] = {
            "path": section.weighting.corpus,
            "files_sha256": hashlib.sha256(files.encode()).hexdigest(),
        }
    if section.vocabulary is not None:
        text = "\n".join(word.text for word in words)
        inputs["vocabulary"] = {
            "path": section.vocabulary,
            "words_sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
    return inputs
