"""The page's script, with a clock and a server that a test moves: a server that hangs is told."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import strandline.page

SCRIPT = Path(strandline.page.__file__).parent / "static" / "page.js"

HARNESS = """
const fs = require("fs");
const said = [], every = [], later = [];
let now = 0, answer = null;
const connection = { textContent: "Live." };
const main = { dataset: { made: "0" }, classList: { contains: () => false }, attributes: [], childNodes: [], children: [],
    hasAttribute: () => false, getAttribute: () => "" };
globalThis.document = { body: { dataset: { interval: "1", made: "0" }, classList: { toggle: () => {} } }, hidden: false,
    getElementById: (id) => id === "connection" ? connection : main, querySelectorAll: () => [], addEventListener: () => {} };
globalThis.performance = { now: () => now };
globalThis.AbortSignal = { timeout: () => null };
globalThis.DOMParser = class { parseFromString() { return { getElementById: () => main }; } };
globalThis.fetch = () => new Promise((resolve) => { answer = () => resolve({ ok: true, text: async () => "" }); });
globalThis.setInterval = (each) => every.push(each);
globalThis.setTimeout = (each) => later.push(each);
(0, eval)(fs.readFileSync(process.argv[2], "utf-8"));
const settle = () => new Promise((resolve) => setImmediate(resolve));
(async () => {
  const run = later.shift();
  run();
  for (const seconds of [3, 7, 9, 14]) {
    now = 1000 * seconds;
    every.forEach((each) => each());
    said.push(connection.textContent);
  }
  answer();
  for (let turn = 0; turn < 5; turn += 1) await settle();
  every.forEach((each) => each());
  said.push(connection.textContent);
  console.log(JSON.stringify(said));
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_a_server_that_hangs_is_told_and_one_that_goes_on_too(tmp_path: Path) -> None:
    """A server that SIGSTOP has stopped keeps its connections: the page stayed "Live." for a minute."""
    harness = tmp_path / "harness.js"
    harness.write_text(HARNESS, encoding="utf-8")
    ran = subprocess.run(["node", str(harness), str(SCRIPT)], capture_output=True, text=True, timeout=60, check=True)
    silent = "The server has not answered for {}. What you see is the last that was read."
    assert json.loads(ran.stdout) == ["Live.", "Live.", silent.format("9 s"), silent.format("14 s"), "Live."]
