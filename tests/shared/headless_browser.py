"""Chromium without a window, spoken to over a pipe (DevTools protocol): no driver and no port is needed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""None where no browser is installed."""
_KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), " ": (32, " "), "Escape": (27, "")}
_AS_3_AND_4 = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Puts two pipes where the browser speaks, and becomes the browser."""


class BrowserError(Exception):
    """What the browser answered instead of a result."""


class Tab:
    """One page. problems: what it wrote to its console as an error, and requests it made for anything."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.problems: list[str] = []
        self.requested: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, parameters, self._session)

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """As on a screen of this size, in pixels."""
        self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str, *, until: str = "document.documentElement.dataset.ready === 'yes'") -> None:
        """Returns once `until` holds. A blank page stands between, else a changed #hash would load nothing."""
        self.do("Page.navigate", url="about:blank")
        self.do("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && ({until})")

    def run(self, script: str) -> Any:
        """The value of an expression, a promise awaited."""
        told = self.do("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise BrowserError(json.dumps(told["exceptionDetails"])[:2000])
        return told["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression holds; asks once a frame, in the browser. BrowserError after 20 s."""
        script = (
            f"new Promise((done) => {{ const began = Date.now(); const look = () => {{ if ({condition}) done(true); "
            "else if (Date.now() - began > 20000) done(false); else setTimeout(look, 15); }; look(); })"
        )
        if not self.run(script):
            raise BrowserError(f"not within 20 s: {condition}")

    def press(self, key: str) -> None:
        code, text = _KEYS[key]
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
        self.do("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about)
        self.do("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """whole: all that can be scrolled to."""
        found = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))

    def heard(self, event: dict[str, Any]) -> None:
        told = event["params"]
        match event["method"]:
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(told["exceptionDetails"])[:1000])
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning"):
                self.problems.append(" ".join(str(each.get("value")) for each in told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.problems.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requested.append(told["request"]["url"])


class Browser:
    """One process of Chromium."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process, self._write, self._read = process, write, read
        self._numbers, self._pending = itertools.count(1), b""
        self._tabs: dict[str, Tab] = {}

    def tab(self, **look: Any) -> Tab:
        target = self.ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        made = self._tabs[session] = Tab(self, session)
        made.look(**look)
        return made

    def close_tab(self, tab: Tab) -> None:
        session = next(key for key, each in self._tabs.items() if each is tab)
        del self._tabs[session]
        self.ask("Page.close", {}, session)

    def ask(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            heard = self._next()
            if heard.get("id") == number:
                if "error" in heard:
                    raise BrowserError(f"{method}: {heard['error']}")
                return heard["result"]
            if "method" in heard and (tab := self._tabs.get(heard.get("sessionId", ""))) is not None:
                tab.heard(heard)

    def close(self) -> None:
        self.ask("Browser.close", {})
        self._process.wait(20)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            more = os.read(self._read, 1 << 20)
            if not more:
                raise BrowserError("the browser has ended")
            self._pending += more
        message, self._pending = self._pending.split(b"\0", 1)
        return json.loads(message)


@contextmanager
def headless_browser(profile: Path) -> Iterator[Browser]:
    """profile: an empty folder of its own."""
    assert PROGRAM is not None
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    command = [
        sys.executable, "-c", _AS_3_AND_4, str(to_browser), str(from_browser), PROGRAM, "--headless=new",
        "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--hide-scrollbars", "--disable-background-networking", f"--user-data-dir={profile}",
    ]
    process = subprocess.Popen(
        command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    browser = Browser(process, write, read)
    try:
        yield browser
        browser.close()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(20)
        os.close(write)
        os.close(read)
