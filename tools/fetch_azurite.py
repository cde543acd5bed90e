"""Fetches Azure's emulator of its blob storage by npm into a folder, for tests only: ``fetch_azurite.py FOLDER``.

Where there is no npm it fetches nothing, and the tests that need the emulator are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "3.37.0"

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("npm") is None:
        print("There is no npm, so Azure's emulator is not fetched. Its tests will be skipped.")
    else:
        options = ["--prefix", str(folder), "--no-save", "--no-audit", "--no-fund", "--silent", "--ignore-scripts"]
        subprocess.run(["npm", "install", *options, f"azurite@{VERSION}"], check=True)
