"""Debian's Chromium, driven by selenium, in a window of an exact size.

May touch:  one browser process, its directory.    Must not touch: the network but loopback.
Invariants: the page is as wide as was asked: a window of Chromium is never narrower than 500 px, so the page's own metrics are set.
Read next:  test_browser.py, pictures.py.
"""

from __future__ import annotations

import base64
import shutil
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WIDTHS = {"wide": (1280, 900), "narrow": (390, 844)}
THEMES = ("light", "dark")
REDRAWN_S = 0.5
"""After a change of the window's size."""
THEMED_S_MAX = 30
PICTURE_HEIGHT_MAX = 1400
"""Of a page that is longer the picture shows the beginning."""


def open_browser(directory: Path) -> webdriver.Chrome:
    """A browser whose profile is in the directory; its owner calls quit()."""
    options = Options()
    options.binary_location = CHROMIUM or ""
    for word in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
        *("--hide-scrollbars", f"--user-data-dir={directory}"),
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


def set_width(browser: webdriver.Chrome, name: str) -> None:
    """Show pages as wide and high as WIDTHS says."""
    set_size(browser, *WIDTHS[name])


def set_size(browser: webdriver.Chrome, width: int, height: int) -> None:
    """The window's inner size in px."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def text_of(browser: webdriver.Chrome, tag: str) -> str:
    """What the first element of that kind shows, "" without one: read in one step, for a page that polls may swap the element between
    two."""
    text: str = browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", tag)
    return text


def choose_theme(browser: webdriver.Chrome, address: str, theme: str) -> None:
    """By the page's own form, as a user does. Raises TimeoutException when the page does not come back in it."""
    browser.get(address)
    former = browser.find_element(By.TAG_NAME, "html")
    button = browser.find_element(By.CSS_SELECTOR, f'.theme button[value="{theme}"]')
    if not button.is_displayed():  # in the menu of a narrow page
        browser.find_element(By.CSS_SELECTOR, "label[for=menu]").click()
    button.click()
    # The next address would cancel the form on its way; and the page may have had the theme before, by the cookie of another port.
    themed = (By.CSS_SELECTOR, f'html[data-theme="{theme}"]')
    for is_there in (
        expected_conditions.staleness_of(former),
        expected_conditions.presence_of_element_located(themed),
    ):
        WebDriverWait(browser, THEMED_S_MAX).until(is_there)


def save_picture(browser: webdriver.Chrome, file: Path, *, quality: int = 0) -> None:
    """The whole page as PNG, or as WebP of a quality up to 100; at least as high as the window."""
    width, height, window = browser.execute_script(
        "const e = document.documentElement; return [e.clientWidth, e.scrollHeight, window.innerHeight]"
    )
    shown = min(max(height, window), PICTURE_HEIGHT_MAX)
    # The window as high as the picture: what stays at its side is as high as the window.
    set_size(browser, width, shown)
    if shown != window:
        time.sleep(REDRAWN_S)
    how = {"format": "webp", "quality": quality} if quality else {"format": "png"}
    clip = {"x": 0, "y": 0, "width": width, "height": shown, "scale": 1}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {**how, "captureBeyondViewport": True, "clip": clip})
    file.write_bytes(base64.b64decode(taken["data"]))
    set_size(browser, width, window)
