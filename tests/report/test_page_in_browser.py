"""The report's page in a browser: what only a browser can say of it. Skipped where there is none."""

import shutil

import pytest

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


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_scrolls_sideways(opened, width):
    page = opened(width)
    page.locator("#unfold").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    inner = "[...document.querySelectorAll('main *')].filter((one) => one.scrollWidth > one.clientWidth + 1 && "
    inner += "getComputedStyle(one).overflowX === 'auto').length"
    assert page.evaluate(inner) == 0


def test_the_keyboard_reaches_every_control(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the results"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    reached = set()
    for _ in range(40):
        reached.add(focused(page).split("\n")[0])
        page.keyboard.press("Tab")
    assert {"Agrees", "toy-fall", "words", "SUPPORTED 1", "unfold all"} <= reached
    summary = page.locator(".statement summary").first
    assert any(summary.inner_text().splitlines()[0].startswith(text[:20]) for text in reached if len(text) > 20)
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator(".statement").first.evaluate("(one) => one.open")


def test_badges_follow_the_filter(opened):
    page = opened()
    page.locator("#unfold").click()
    rows = page.locator(".statement tr")

    def shown():
        return [row.locator("td").first.inner_text() for row in rows.all() if row.is_visible()]

    def badges(where):
        return [one.inner_text() for one in page.locator(f"{where} .verdict").all() if one.is_visible()]

    every = ["SUPPORTED", "NOT SUPPORTED", "HYPOTHESES FAIL", "VACUOUS"]
    assert shown() == every
    assert badges(".experiment > summary") == [
        "QUICK",
        *(f"{verdict} 1" for verdict in every[:2]),
        "VACUOUS 1",
        "HYPOTHESES FAIL 1",
    ]
    page.locator("#words").fill("fedrep FALLS")
    assert shown() == ["SUPPORTED", "NOT SUPPORTED"]
    assert page.locator("#count").inner_text() == "2 of 4 claims"
    assert badges(".experiment > summary") == ["QUICK", "SUPPORTED 1", "NOT SUPPORTED 1"]
    assert badges(".filter") == ["SUPPORTED 1", "NOT SUPPORTED 1", "VACUOUS 0", "HYPOTHESES FAIL 0"]
    page.locator("[data-verdict='NOT SUPPORTED']").click()
    assert shown() == ["NOT SUPPORTED"]
    assert badges(".statement > summary") == ["NOT SUPPORTED 1"]
    assert badges(".filter") == ["SUPPORTED 1", "NOT SUPPORTED 1", "VACUOUS 0", "HYPOTHESES FAIL 0"]
    page.locator("#words").fill("nothing like it")
    assert not page.locator(".experiment").is_visible()
    page.locator("#words").fill("")
    page.locator("[data-verdict='NOT SUPPORTED']").click()
    assert shown() == every


def test_a_link_unfolds_its_experiment(opened):
    page = opened()
    page.locator(".experiment").evaluate("(one) => { one.open = false; }")
    page.locator("nav").get_by_role("link", name="toy-fall").click()
    assert page.locator(".experiment").evaluate("(one) => one.open")


def test_figures_and_claims_are_printed(opened):
    page = opened()
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.locator(".filter").is_visible()
    assert page.locator("figure img").first.is_visible()
    assert page.locator(".statement > summary").first.is_visible()
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth)")
