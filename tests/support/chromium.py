"""A headless Chromium, driven by chromedriver's own protocol (W3C WebDriver): pages are opened, looked at and photographed."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def missing() -> str | None:
    """Why there is no browser here, or ``None``."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(absent)} on this machine (apt-get install chromium chromium-driver)" if absent else None


class Chromium:
    """A browser of its own, with an empty profile, until the ``with`` block ends."""

    def __enter__(self) -> Chromium:
        self._profile = tempfile.TemporaryDirectory()
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        try:
            assert self._driver.stdout is not None
            port = next(found[1] for line in self._driver.stdout if (found := re.search(r"on port (\d+)\.", line)))
            self._client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
            options = {"args": [*FLAGS, f"--user-data-dir={self._profile.name}"], "binary": shutil.which("chromium")}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            answer = self._client.post("/session", json={"capabilities": {"alwaysMatch": wanted}}).json()["value"]
            self._session = f"/session/{answer['sessionId']}"
        except BaseException:
            self._driver.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._client.delete(self._session)
            self._client.close()
        finally:
            self._driver.terminate()
            self._driver.wait(30)
            self._profile.cleanup()

    def _post(self, path: str, **body: Any) -> Any:
        answer = self._client.post(self._session + path, json=body)
        assert answer.is_success, answer.text
        return answer.json()["value"]

    def cdp(self, command: str, **parameters: Any) -> Any:
        """Run a command of the DevTools."""
        return self._post("/goog/cdp/execute", cmd=command, params=parameters)

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True) -> None:
        """Open a page, in a window of a size, in a light or dark scheme."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.cdp("Emulation.setEmulatedMedia", features=features)
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.cdp("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._post("/url", url=url)

    def run(self, script: str) -> Any:
        """Run JavaScript in the page, and return what it returns."""
        return self._post("/execute/sync", script=script, args=[])

    def wait(self, script: str) -> Any:
        """Wait until JavaScript in the page returns something true, at most a minute, and return it."""
        body = f"""
            const done = arguments[arguments.length - 1], check = () => {{ const found = (() => {{ {script} }})();
            found ? done(found) : setTimeout(check, 50); }}; check();"""
        self._post("/timeouts", script=60_000)
        return self._post("/execute/async", script=body, args=[])

    def problems(self) -> list[str]:
        """What the console says since the last call: errors, refused resources, violations of the policy."""
        return [entry["message"] for entry in self._post("/se/log", type="browser") if entry["level"] in ("SEVERE", "WARNING")]

    def photograph(self, path: Path, *, whole: bool = True) -> None:
        """Write what is to be seen, or the whole page, as a PNG."""
        picture = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))
