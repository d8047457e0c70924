"""What the script of a page does in a browser."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.report.html_page import html_of
from tests.report.sample_suites import full_suite

# Three clicks on the columns of the first task and of one that a model did not do, then two texts in the box.
CLICKS = """<script>
const told = [], table = document.querySelector("table.sortable"), heads = [...table.tHead.rows[1].cells];
const names = () => [...table.tBodies[0].rows].map((row) => row.querySelector("th span span").textContent);
for (const column of [1, 3]) for (let click = 0; click < 3; click++) {
  heads[column].querySelector("button").click();
  told.push([heads[column].getAttribute("aria-sort"), names()]);
}
const box = document.querySelector("label.filter input");
for (const text of ["QUERY 3", ""]) {
  box.value = text;
  box.dispatchEvent(new Event("input"));
  const output = box.parentNode.querySelector("output").textContent;
  told.push([output, document.querySelectorAll("#task-0-units tbody tr:not([hidden])").length]);
}
document.body.textContent = "told:" + JSON.stringify(told) + ":told";
</script>"""


def seen_by_a_browser(html: str, folder: Path) -> str:
    """The page after its scripts ran, as the browser holds it."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on the path")
    (folder / "page.html").write_text(html, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command = [browser, *options, "--dump-dom", (folder / "page.html").as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.real
def test_the_page_allows_its_own_script_and_no_other(tmp_path: Path) -> None:
    html = html_of(full_suite())
    assert "<button" in seen_by_a_browser(html, tmp_path)
    assert "<button" not in seen_by_a_browser(html.replace('"use strict";', '"use strict"; '), tmp_path)


@pytest.mark.real
def test_tables_sort_both_ways_and_back_and_boxes_leave_rows_with_a_text(tmp_path: Path) -> None:
    html = re.sub(r"<meta http-equiv[^>]*>", "", html_of(full_suite()))
    html = html.replace("</body>", f"{CLICKS}</body>")
    told = re.search(r"told:(.*):told", seen_by_a_browser(html, tmp_path).split("<body>")[1])
    assert told is not None
    assert json.loads(told[1]) == [
        ["descending", ["large", "lexical", "small"]],
        ["ascending", ["small", "lexical", "large"]],
        [None, ["small", "large", "lexical"]],
        # Nothing was measured of the last one, which stays last.
        ["descending", ["large", "small", "lexical"]],
        ["ascending", ["small", "large", "lexical"]],
        [None, ["small", "large", "lexical"]],
        ["1 of 4", 1],
        ["", 4],
    ]
