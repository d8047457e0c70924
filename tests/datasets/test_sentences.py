import random
from itertools import pairwise

import pytest

from adiabat.datasets.arxiv import sentence_spans


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "parts",
    [
        ["The cat sat.", "It purred!", "Why?", "Nobody knows."],
        ["Born in 1990.", "2 years later he left."],
        ['He said "stop."', "She did.", "(They all did.)", "«Oui !»", "Bien."],
        ["Dr. J. R. Smith met Mr. Brown et al. He left at once.", "Then nothing."],
        ["He came from the U.S. Army, i.e. Washington (D.C. or near).", "See No. 5 and Fig. 2.", "No.", "That is all."],
        ["Yahoo! is old.", "An ellipsis... goes on.", "Or…", "It does not."],
        ["他来了。", "她说：「好。」", "真的吗？", "是"],
        ["متى بدأت الأعراض؟", "بدأت أمس.", "شكرا۔", "نعم"],
        ["वह आया।", "वह गया।"],
        ["שלום.", "מה שלומך?"],
        ["Один.", "Два.", "И т. д. не конец."],
        ["A title", "A text below an empty line."],
        ["3.14 is pi.", "Version 2.0 is out."],
        ["Roe v. Wade was c. 1973.", "It matters.", ". ... ! C. Darwin agreed. ?"],
    ],
    ids=lambda parts: parts[0][:12],
)
def test_sentences_are_cut_where_a_reader_would_cut_them(parts: list[str]) -> None:
    cjk = not parts[0].isascii() and parts[0].endswith("。")
    gap = "\n \n" if parts[0] == "A title" else "" if cjk else " "
    assert sentences(gap.join(parts)) == parts


def test_a_line_end_alone_ends_no_sentence_and_a_text_without_words_gives_what_it_holds() -> None:
    assert sentences("The first line\n  goes on here. The second.\n") == ["The first line\n  goes on here.", "The second."]
    assert [sentences(text) for text in ("", "  \n\n ", ".", ". ! ... ?")] == [[], [], ["."], [". ! ... ?"]]


def test_spans_give_the_letters_of_the_text_and_lose_none_but_white_space() -> None:
    draw = random.Random(0)
    letters = ["a", "B", ".", "!", " ", "\n", "\n\n", "é", "。", "א", "(", '"', "Dr", "U.S", "7"]
    for _ in range(2_000):
        text = "".join(draw.choices(letters, k=draw.randrange(30)))
        spans = sentence_spans(text)
        assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        kept = {place for span in spans for place in range(*span)}
        assert all(letter.isspace() for place, letter in enumerate(text) if place not in kept)


def test_a_text_put_before_changes_no_sentence_behind() -> None:
    text = "He met Prof. Lee. They talked (a lot). Why? Nobody asked."
    assert sentences(f"One more. {text}") == ["One more.", *sentences(text)]
