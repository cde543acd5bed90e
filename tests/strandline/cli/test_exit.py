"""A command ends with its exit code, whatever threads it leaves."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import atexit, io, sys, threading, time
import pyarrow as pa
import pyarrow.parquet as pq
from strandline.cli import __main__

class File(io.BytesIO):
    def read(self, n=-1):
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            time.sleep(0.3)
        return super().read(n)

def main():
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": [1]}), sink)
    batches = pq.ParquetFile(pa.PythonFile(File(sink.getvalue()), mode="r"), pre_buffer=True).iter_batches()
    threading.Thread(target=lambda: next(batches), daemon=True).start()
    inside.wait()
    atexit.register(print, "the end")
    print("told")
    return int(sys.argv[1])

inside = threading.Event()
__main__.main = main
__main__.run()
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_ends_with_its_code_while_a_thread_of_arrow_reads(code: int) -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(code)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "told\nthe end\n", "")


@pytest.mark.parametrize(("output", "code"), [("| true", 141), ("> /dev/full", 70)])
def test_a_command_whose_output_goes_nowhere_says_so_by_its_code(output: str, code: int) -> None:
    program = "from strandline.cli import __main__; __main__.main = lambda: print('told') or 0; __main__.run()"
    line = f'(sleep 0.2; unset PYTHONUNBUFFERED; exec "$0" -c "$1") {output}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", line, sys.executable, program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
