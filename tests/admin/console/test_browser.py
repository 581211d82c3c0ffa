"""The console in a real browser: what a user sees from a new topic to a broker's death and back, both widths, both themes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from barnabas_admin.local_cluster import LocalCluster
from tests.admin.console.conftest import Console

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.tools,
    pytest.mark.ecosystem,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="Chromium is missing: sudo apt-get install chromium chromium-driver"
    ),
]
IS_FULL = os.environ.get("BARNABAS_ECOSYSTEM_FULL") == "1"
WIDTHS = {"wide": (1280, 900), "narrow": (390, 844)}
SCREENS = (
    *(
        "/",
        "/quorum",
        "/brokers",
        "/brokers/1",
        "/topics",
        "/topics/new",
        "/topics/flights",
        "/topics/flights?tab=config",
    ),
    *("/topics/flights?tab=messages&start=newest", "/topics/flights?tab=consumers", "/topics/flights?tab=explain"),
    *("/topics/flights/produce", "/topics/flights/config?key=retention.ms", "/topics/flights/delete"),
    *("/groups", "/events", "/explain", "/nothing"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = CHROMIUM or ""
    for word in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
        f"--user-data-dir={tmp_path_factory.mktemp('browser')}",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield found
    found.quit()


def see(browser: webdriver.Chrome, words: str, *, within_s: float = 60) -> None:
    """Wait until the page shows the words, by its own polling."""
    wait(lambda: words in browser.find_element(By.TAG_NAME, "main").text, words, within_s=within_s)


def wait(is_so: Callable[[], bool], what: str, *, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            if is_so():
                return
        except StaleElementReferenceException:
            pass  # the page swapped it just then
        assert time.monotonic() < deadline, f"not seen within {within_s} s: {what}"
        time.sleep(0.1)


def complaints(browser: webdriver.Chrome) -> list[str]:
    """What the browser's console says of refused scripts, missing files, errors; answers of 4xx and 5xx to the page itself aside."""
    return [
        each["message"] for each in browser.get_log("browser") if "the server responded with" not in each["message"]
    ]


def test_from_a_new_topic_to_a_broker_that_dies_and_returns(
    browser: webdriver.Chrome, console: Console, cluster: LocalCluster
) -> None:
    browser.set_window_size(*WIDTHS["wide"])
    browser.get(f"{console.address}/topics/new")
    for name, value in (("name", "flights"), ("partitions", "3"), ("replicas", "3")):
        browser.find_element(By.NAME, name).send_keys(value)
    browser.find_element(By.CSS_SELECTOR, "button.primary").click()
    see(browser, "In sync")
    assert browser.current_url == f"{console.address}/topics/flights"

    tail = browser.current_window_handle
    browser.get(f"{console.address}/topics/flights/tail")
    browser.switch_to.new_window("tab")
    browser.get(f"{console.address}/topics/flights/produce")
    browser.find_element(By.NAME, "key").send_keys("LH400")
    browser.find_element(By.NAME, "value").send_keys('{"to": "JFK"}')
    browser.find_element(By.CSS_SELECTOR, "button.primary").click()
    see(browser, "LH400")
    browser.close()
    browser.switch_to.window(tail)
    see(browser, '{"to": "JFK"}')

    browser.get(f"{console.address}/topics/flights")
    cluster.kill(3)
    try:
        see(browser, "yes: why?")  # the page asks again by itself
        browser.find_element(By.PARTIAL_LINK_TEXT, "why?").click()
        see(browser, "3")
        assert browser.find_elements(By.CSS_SELECTOR, ".causes li"), "the explanation has causes"
        browser.get(console.address)
        see(browser, "unhealthy")
    finally:
        cluster.start_node(3)
    see(browser, "Everything is well")
    assert complaints(browser) == []


@pytest.mark.parametrize(
    ("width", "theme"), [(w, t) for w in WIDTHS for t in ("light", "dark")] if IS_FULL else [("narrow", "dark")]
)
def test_every_screen_is_accessible_and_never_wider_than_its_window(
    browser: webdriver.Chrome, console: Console, width: str, theme: str
) -> None:
    """axe finds no violation; nothing scrolls sideways but tables in their frame. BARNABAS_SCREENSHOTS=DIR keeps pictures."""
    if console.client.get("/topics/flights").status_code == 404:
        console.post("/topics/new", name="flights", partitions="3", replicas="3")
    axe = files("axe_selenium_python").joinpath("node_modules/axe-core/axe.min.js").read_text()
    kept = os.environ.get("BARNABAS_SCREENSHOTS")
    browser.set_window_size(*WIDTHS[width])
    browser.get(console.address)
    Select(browser.find_element(By.NAME, "theme")).select_by_visible_text(theme)
    browser.find_element(By.CSS_SELECTOR, ".theme button").click()
    found: dict[str, list[str]] = {}
    for screen in SCREENS if IS_FULL else SCREENS[:8:2]:
        browser.get(f"{console.address}{screen}")
        assert browser.find_element(By.TAG_NAME, "html").get_attribute("data-theme") == theme
        browser.execute_script(axe)
        violations = browser.execute_async_script(
            "const done = arguments[0]; axe.run().then(r => done(r.violations.map(v => v.id + ': ' + v.nodes[0].html)))"
        )
        overflow = browser.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if violations or overflow > 0:
            found[screen] = [*violations, f"{overflow} px too wide"]
        if kept:
            name = (
                screen.strip("/").replace("/", "-").replace("?", "-").replace("&", "-").replace("=", "-") or "overview"
            )
            browser.save_screenshot(str(Path(kept) / f"{name}-{width}-{theme}.png"))
    assert found == {}
    assert complaints(browser) == []
