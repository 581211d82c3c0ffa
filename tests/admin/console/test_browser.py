"""The console in a real browser: what a user sees from a new topic to a broker's death and back, both widths, both themes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from importlib.resources import files

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By

from barnabas_admin.local_cluster import LocalCluster
from tests.admin.console.browser import CHROMIUM, DRIVER, THEMES, WIDTHS, choose_theme, open_browser, set_width, text_of
from tests.admin.console.conftest import Console
from tests.admin.console.pictures import serving_sign_in
from tests.admin.console.screens import screens

pytestmark = [
    pytest.mark.tools,
    pytest.mark.ecosystem,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="Chromium is missing: sudo apt-get install chromium chromium-driver"
    ),
]
IS_FULL = os.environ.get("BARNABAS_ECOSYSTEM_FULL") == "1"
OPEN = "writer-1"
"""A transactional id with an open transaction."""
SCREENS = screens(topic="flights", group="readers", transactional_id=OPEN, step=3, record_step=2)
SHORT = ("overview", "topics", "topic", "acls", "run")
"""Screens of the short form."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    found = open_browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.quit()


@pytest.fixture
def furnished(console: Console, cluster: LocalCluster) -> Iterator[None]:
    """What the screens show: a topic, a group that has committed, an open transaction, a user, an ACL, a quota."""
    if console.client.get("/topics/flights").status_code == 404:
        console.post("/topics/new", name="flights", partitions="3", replicas="3")
    console.post("/topics/flights/produce", key="LH400", value='{"to": "JFK"}')
    client = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    reader = Consumer(client | {"group.id": "readers", "auto.offset.reset": "earliest"})
    reader.commit(offsets=[TopicPartition("flights", 0, 0)], asynchronous=False)
    reader.close()
    writer = Producer(client | {"transactional.id": OPEN})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce("flights", b"{}")
    writer.flush(30)
    for path, fields in (
        ("users/set", {"name": "ada", "mechanism": "SCRAM-SHA-512", "password": "x", "again": "x"}),
        (
            "acls/new",
            {
                "principal": "User:ada",
                "permission": "allow",
                "operation": "read",
                "resource": "topic",
                "name": "flights",
            },
        ),
        ("quotas/set", {"user": "ada", "key": "producer_byte_rate", "bound": "1000000"}),
    ):
        assert console.post(f"/access/{path}", **fields).status_code == 303
    yield
    writer.abort_transaction(30)


def see(browser: webdriver.Chrome, words: str, *, within_s: float = 60) -> None:
    """Wait until the page shows the words, by its own polling."""
    wait(lambda: words in text_of(browser, "main"), words, within_s=within_s)


def wait(is_so: Callable[[], bool], what: str, *, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            if is_so():
                return
        except (NoSuchElementException, StaleElementReferenceException):
            pass  # the page swapped it just then, or the next one is on its way
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
    set_width(browser, "wide")
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


def test_a_run_is_stepped_through_by_its_links(browser: webdriver.Chrome, console: Console) -> None:
    set_width(browser, "wide")
    browser.get(f"{console.address}/sim")
    see(browser, "Node 1 leads the quorum in epoch 2")
    browser.find_element(By.PARTIAL_LINK_TEXT, "Next").click()
    see(browser, "Node 3 is cut off")
    assert browser.current_url == f"{console.address}/sim?step=3"
    browser.find_element(By.PARTIAL_LINK_TEXT, "each record's way").click()
    browser.find_element(By.PARTIAL_LINK_TEXT, "Previous").click()
    see(browser, "Node 2 writes record 2")
    assert complaints(browser) == []


@pytest.mark.usefixtures("furnished")
@pytest.mark.parametrize(
    ("width", "theme"), [(w, t) for w in WIDTHS for t in THEMES] if IS_FULL else [("narrow", "dark")]
)
def test_every_screen_is_accessible_and_never_wider_than_its_window(
    browser: webdriver.Chrome, console: Console, cluster: LocalCluster, width: str, theme: str
) -> None:
    """axe finds no violation; nothing scrolls sideways but tables in their frame."""
    set_width(browser, width)
    choose_theme(browser, console.address, theme)
    found: dict[str, list[str]] = {}
    for name in SCREENS if IS_FULL else SHORT:
        browser.get(f"{console.address}{SCREENS[name]}")
        assert browser.execute_script("return document.documentElement.dataset.theme") == theme
        is_error = text_of(browser, "h1") == "That did not work"
        assert is_error == (name == "not-there"), f"{name}: {text_of(browser, 'main')}"
        assert browser.execute_script("return window.innerWidth") == WIDTHS[width][0]
        found[name] = faults(browser)
    with serving_sign_in(cluster) as guarded:
        choose_theme(browser, guarded, theme)
        assert text_of(browser, "h1") == "Sign in"
        found["sign-in"] = faults(browser)
    assert {name: each for name, each in found.items() if each} == {}
    assert complaints(browser) == []


def faults(browser: webdriver.Chrome) -> list[str]:
    """What axe finds on the page that is open, and whether it is too wide."""
    axe = files("axe_selenium_python").joinpath("node_modules/axe-core/axe.min.js").read_text()
    browser.execute_script(axe)
    violations: list[str] = browser.execute_async_script(
        "const done = arguments[0]; axe.run().then(r => done(r.violations.map(v => v.id + ': ' + v.nodes[0].html)))"
    )
    overflow = browser.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return [*violations, *([f"{overflow} px too wide"] if overflow > 0 else [])]
