"""The report in a browser: nothing fails, nothing is fetched, sorting, filtering and dark mode work."""

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from homophily.cli import app
from homophily.evaluation.tables import ResultTable
from homophily.figures import gains_over_random
from homophily.report import Section, results_page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt install chromium")
LIMIT = 300_000  # milliseconds for whatever is waited for: the machine may have other work
ARTEFACTS = Path(os.environ.get("HOMOPHILY_ARTEFACTS", "artefacts"))
NAMES = ["<script>alert(1)</script>", "alpha", "gamma", "beta10", "beta9", "delta"]


@pytest.fixture(scope="module", name="report")
def report_of_a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    rows = [[(7 * i * j + i * i) % 23 + (i % 3) * 9 for j in range(1, 7)] for i in range(60)]
    lines = [",".join(['"' + NAMES[0] + '"', *NAMES[1:], "kind"])]
    lines += [",".join(map(str, [*row, "abc"[i % 3]])) for i, row in enumerate(rows)]
    (folder / "data.csv").write_text("\n".join(lines))
    options = [
        "-m",
        "6",
        "--label-column",
        "kind",
        "--method",
        "dirichlet",
        "--max-iter",
        "5",
        "--out",
        str(folder / "out"),
        "-q",
    ]
    run = CliRunner().invoke(app, ["select", str(folder / "data.csv"), *options])
    assert run.exit_code == 0, run.output
    return folder / "out" / "report.html"


@pytest.fixture(scope="module", name="browser")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=LIMIT)
        yield browser
        browser.close()


@pytest.fixture(scope="module", name="results")
def report_of_results(tmp_path_factory):
    """What compare and reproduce write."""
    rows = [["b10", "0.912 ± 0.013"], ["b9", "-0.011 ± 0.028"], ["a", ""], [NAMES[0], "1.5"]]
    gains = pd.DataFrame(
        {"measure": "accuracy", "group": "5 features", "method": [row[0] for row in rows], "gain": 0.1, "error": 0.05}
    )
    table = ResultTable("Results", ["method", "accuracy"], rows)
    sections = [Section("Figure", gains_over_random(gains), "text"), Section("Table", table=table)]
    file = tmp_path_factory.mktemp("results") / "report.html"
    file.write_text(results_page("Title", "lead", summary={"Data": "x"}, sections=sections, notes=["note"]), "utf-8")
    return file


@pytest.fixture(name="opened")
def opened_page(browser, report):
    """A function that opens a report and watches; at the end nothing must have gone wrong."""
    troubles, pages = [], []

    def opened(report=report, **options):
        page = browser.new_page(**options)
        page.set_default_timeout(LIMIT)
        pages.append(page)
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append("a dialog opened"))
        page.on(
            "request", lambda request: None if request.url == report.as_uri() else troubles.append(request.url[:80])
        )
        page.goto(report.as_uri())
        return page

    yield opened
    for page in pages:
        page.close()
    troubles = [trouble for trouble in troubles if not trouble.startswith("data:")]  # pictures inside the page
    assert troubles == []


def names(page):
    return page.locator("#features tbody tr:visible td.name").all_inner_texts()


def test_features_can_be_sorted_and_filtered(opened):
    page = opened()
    assert sorted(names(page)) == sorted(NAMES)
    page.get_by_role("button", name="feature").click()
    by_name = ["<script>alert(1)</script>", "alpha", "beta9", "beta10", "delta", "gamma"]
    assert names(page) == by_name
    page.get_by_role("button", name="feature").click()
    assert names(page) == by_name[::-1]
    assert page.locator("#features th").nth(1).get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="score").click()
    scores = [float(v) for v in page.locator("#features td[data-v]").evaluate_all("all => all.map(e => e.dataset.v)")]
    assert scores == sorted(scores)
    page.get_by_label("Filter the features by name").fill("BETA")
    assert sorted(names(page)) == ["beta10", "beta9"]
    assert page.locator("#shown").inner_text() == "2 of 6"
    page.get_by_label("Filter the features by name").fill("")
    assert len(names(page)) == 6


def test_results_can_be_sorted(opened, results):
    page = opened(results)

    def first_column():
        return page.locator("table.sortable tbody td:first-child").all_inner_texts()

    page.get_by_role("button", name="method").click()
    assert first_column() == [NAMES[0], "a", "b9", "b10"]
    page.get_by_role("button", name="accuracy").click()
    assert first_column() == ["a", "b9", "b10", NAMES[0]]  # nothing is less than any number
    page.get_by_role("button", name="accuracy").click()
    assert first_column() == [NAMES[0], "b10", "b9", "a"]


@pytest.mark.parametrize("kind", ["report", "results"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_in_both_schemes(opened, request, kind, width, scheme):
    page = opened(request.getfixturevalue(kind), viewport={"width": width, "height": 900}, color_scheme=scheme)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    text = page.evaluate("getComputedStyle(document.body).color")
    brightness = [sum(map(float, color[color.index("(") + 1 : -1].split(",")[:3])) for color in (background, text)]
    if scheme == "dark":
        assert brightness[0] < 150 < 500 < brightness[1]
    else:
        assert brightness[1] < 150
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{kind}-{width}-{scheme}.png", full_page=True)
