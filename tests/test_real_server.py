"""Second tier: the page of the server in the system's Chromium, by mouse and by keyboard, on a phone too; and
requests by its description.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.serving.test_serve import QUERY, served
from tests.serving.test_serve import world as world

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]

PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(Path(sys.prefix) / "integrations")])
        try:
            playwright = importlib.import_module("playwright.sync_api")
        except ImportError as fault:
            pytest.skip(f"{fault}; make test-real installs it from requirements/integrations.txt")
        with playwright.sync_playwright() as driver:
            opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            yield opened
            opened.close()


@pytest.fixture
def client(world: Path) -> Iterator[httpx.Client]:
    towers = {"untuned": "model", "tuned": "full", "lora": "lora-delta"}
    with served(world, towers, fuse="bm25", preferences=str(world / "thumbs.jsonl")) as client:
        yield client


def opened(browser: Any, client: httpx.Client, **options: Any) -> Any:
    """The page, whose every request to another address or fault fails the test."""
    page = browser.new_page(**options)
    page.on("pageerror", lambda fault: pytest.fail(str(fault)))
    page.on("requestfailed", lambda request: pytest.fail(request.url))
    page.goto(str(client.base_url))
    page.wait_for_selector("[name=tower]")
    return page


def test_a_question_is_asked_and_judged_by_keys_alone(
    world: Path, client: httpx.Client, browser: Any
) -> None:
    page = opened(browser, client)
    page.keyboard.press("/")
    page.keyboard.type(QUERY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#columns li")
    # The first two towers are chosen, and the second one says what moved.
    assert page.locator("#columns h2").all_inner_texts() == ["untuned", "tuned"]
    expected = client.post("/search", json={"query": QUERY, "tower": "tuned"}).json()["hits"]
    lists = page.locator("#columns ol")
    assert lists.nth(1).locator("li").count() == len(expected) == 10
    moves = lists.nth(1).locator(".moved").all_inner_texts()
    assert all(move.split(maxsplit=1)[1].startswith(("up", "down", "same", "new")) for move in moves)
    page.locator("#query").blur()
    for key in ("j", "l", "j"):
        page.keyboard.press(key)
    focused = page.evaluate(
        "[...document.activeElement.parentElement.children].indexOf(document.activeElement)"
    )
    assert focused == 1
    page.keyboard.press("-")
    page.locator("#status", has_text="kept once another").wait_for()
    assert (world / "thumbs.jsonl").read_text() == ""
    page.keyboard.press("k")
    page.keyboard.press("+")
    page.locator("#status", has_text="kept: ").wait_for()
    (row,) = [json.loads(line) for line in (world / "thumbs.jsonl").read_text().splitlines()]
    assert (row["query"], row["tower"]) == (QUERY, "tuned")
    assert (row["pos"], row["neg"]) == ([expected[0]["text"]], [expected[1]["text"]])
    page.close()


def test_a_phone_shows_towers_below_one_another(client: httpx.Client, browser: Any) -> None:
    page = opened(browser, client, viewport=PHONE)
    page.fill("#query", QUERY)
    page.check("#fuse")
    page.click("text=Search")
    page.wait_for_selector("#columns li")
    boxes = [section.bounding_box() for section in page.locator("#columns section").all()]
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    # Each control has a name for a screen reader.
    assert page.get_by_label("Question", exact=True).count() == 1
    assert page.get_by_role("button", name="answers the question").count() > 0
    page.close()


def test_a_page_asks_for_the_token_of_its_server(world: Path, browser: Any) -> None:
    with served(world, {"only": "full"}, token="secret") as client:
        page = browser.new_page()
        page.goto(str(client.base_url))
        page.get_by_label("Token").fill("secret")
        page.get_by_label("Token").blur()
        page.wait_for_selector("[name=tower]")
        page.fill("#query", QUERY)
        page.click("text=Search")
        page.wait_for_selector("#columns li")
        page.close()


CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance")


def test_the_description_of_the_server_is_true(client: httpx.Client) -> None:
    integrations = Path(sys.prefix) / "integrations"
    if not (integrations / "schemathesis").is_dir():
        pytest.skip(
            "schemathesis is not there; make test-real installs it from requirements/integrations.txt"
        )
    checks = ",".join((*CHECKS, "response_schema_conformance"))
    options = ["--checks", checks, "--max-examples", "25", "--workers", "1", "--generation-deterministic"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{client.base_url}/openapi.json", *options],
        env={**os.environ, "PYTHONPATH": str(integrations)},
        cwd=integrations,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    # It did send requests.
    assert "generated" in done.stdout
