"""Chromium, driven by Selenium, both of Debian; nothing is downloaded."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

DEADLINE = 60


def is_here() -> bool:
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One tab."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def go(self, address: str) -> None:
        self.driver.get(address)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a JavaScript function's body, which runs in the page."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str) -> Any:
        """Waits until it is true."""
        wait: WebDriverWait[webdriver.Chrome] = WebDriverWait(self.driver, DEADLINE, 0.02)
        return wait.until(lambda driver: driver.execute_script(script))

    def press(self, *keys: str) -> None:
        """Keys, to what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def color_scheme(self, name: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def picture(self, path: Path) -> None:
        path.write_bytes(self.driver.get_screenshot_as_png())

    def roles(self) -> list[tuple[str, str]]:
        """Role and name of all that a screen reader is told of."""
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [
            (node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"]
        ]

    def problems(self) -> list[str]:
        """The browser's own complaints since the last call, except answers of 401."""
        logged = [str(each["message"]) for each in self.driver.get_log("browser")]
        return [message for message in logged if "401" not in message]


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile in a folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    arguments = ["--headless=new", "--hide-scrollbars", f"--user-data-dir={folder}"]
    # Chromium has no sandbox for root.
    arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
    for argument in (*arguments, "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(argument)
    # What a site may load is then only what the tests serve.
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        opened = Browser(driver)
        opened.size(1360, 900)
        yield opened
    finally:
        driver.quit()
