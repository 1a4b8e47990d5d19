"""The report's page in a browser: what only a browser can say of it. Skipped where there is none."""

import shutil

import pytest

from tests.test_report import toy, written

assert all((toy, written))  # fixtures

pytestmark = pytest.mark.long

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="module")
def browser():
    if BROWSER is None:
        pytest.skip("there is no Chromium here: the page is not opened")
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the page is not opened")
    with driver.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(written):
    return (written[0] / "report.html").as_uri()


@pytest.fixture
def opened(browser, address):
    """Return a function that opens the page in a window, and fails at the end for whatever the console says."""
    said, windows = [], []

    def open_page(width=1280, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        windows.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or said.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in windows:
        context.close()
    assert said == []


def focused(page):
    return page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id")


def test_all_images_load(opened):
    sizes = opened().evaluate("[...document.images].map((image) => [image.complete, image.naturalWidth])")
    assert len(sizes) == 2
    assert all(complete and width > 0 for complete, width in sizes)


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_is_as_wide_as_the_window(opened, width):
    page = opened(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate("[...document.querySelectorAll('.box')].map((box) => box.scrollWidth > box.clientWidth)")
    assert any(wide) == (width < 1000)  # tables scroll in their own boxes


def test_the_keyboard_reaches_every_control(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the results"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    reached = set()
    for _ in range(80):
        reached.add(focused(page))
        page.keyboard.press("Tab")
    wanted = {"Scoreboard", "show the claims", "words", "SUPPORTED 1", "verdict", "measured"}
    assert wanted <= reached


def test_claims_are_filtered_and_sorted(opened):
    page = opened()
    rows = page.locator("#all tbody tr")

    def shown():
        return [row.locator("td").first.inner_text() for row in rows.all() if row.is_visible()]

    assert len(shown()) == 4
    page.locator("#words").fill("fedrep FALLS")
    assert shown() == ["SUPPORTED", "NOT SUPPORTED"]
    assert page.locator("#count").inner_text() == "2 of 4 claims"
    page.locator("[data-verdict='NOT SUPPORTED']").click()
    assert shown() == ["NOT SUPPORTED"]
    page.get_by_role("button", name="show the claims").click()
    assert len(shown()) == 4
    head = page.locator("th button", has_text="measured")
    head.click()
    assert shown() == ["NOT SUPPORTED", "HYPOTHESES FAIL", "SUPPORTED", "VACUOUS"]  # what is no number is last
    head.click()
    assert shown() == ["SUPPORTED", "HYPOTHESES FAIL", "NOT SUPPORTED", "VACUOUS"]
    assert page.locator("th[aria-sort='descending']").inner_text().startswith("measured")


def test_the_dark_scheme_is_dark(opened):
    light, dark = (
        opened(color_scheme=scheme).evaluate(
            "['backgroundColor', 'color'].map((name) => Math.max(...getComputedStyle(document.body)[name]"
            ".match(/[0-9]+/g).map(Number)))"
        )
        for scheme in ("light", "dark")
    )
    assert light[0] > 200 > 100 > light[1]
    assert dark[0] < 100 < 200 < dark[1]


def test_all_is_printed(opened):
    page = opened()
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.locator(".filter").is_visible()
    box = page.locator(".box.tall")
    assert box.evaluate("(one) => one.scrollHeight <= one.clientHeight + 2")
    assert page.locator("figure img").first.is_visible()
