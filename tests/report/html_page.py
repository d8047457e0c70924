"""What a browser would see of a page."""

import csv
import io
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

from rich.console import Console

from adiabat.report import pages
from adiabat.results.record import Record

VOID = {"meta", "link", "br", "img", "input", "hr"}
NASTY = '<script>alert("x")</script><img src=x onerror=alert(1)>{{ 7 * 7 }}</title></style>'


HOSTILE = "=cmd|'x'!A1 <b>&amp; *x* _y_ [z](w) `c` \\end{tabular} % $1 #2 ^3 ~4 {5} \"q\"\n| new"


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


def html_of(record: Record) -> str:
    return pages.files(record)["report.html"]()


def table_of(record: Record, ending: str) -> str:
    """The table in a file for another program: ``csv``, ``md`` or ``tex``."""
    return plain(pages.files(record)[f"table.{ending}"]())


def csv_rows(record: Record) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(pages.files(record)["table.csv"]())))


def printed(result: Record, width: int = 80) -> str:
    """The terminal tables of a record."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(*pages.terminal_tables(result))
    return plain(out.getvalue())


def texts(svg: str) -> list[str]:
    return [
        "".join(node.itertext()).strip()
        for node in ElementTree.fromstring(svg).iter()
        if node.tag.endswith("}text")
    ]


class Page(HTMLParser):
    """Elements with their attributes, text, and whether all tags close."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.pieces).replace("\xa0", " ").split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open and "script" not in self.open:
            self.pieces.append(data)

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    def ids(self) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get("id")) is not None]

    def lacks(self, *parts: str) -> list[str]:
        """Parts that the text of the page does not hold."""
        return [part for part in parts if part not in self.text]

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [
            attributes for _, attributes in self.elements if name in (attributes.get("class") or "").split()
        ]
