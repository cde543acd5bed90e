"""Measures what the tests find: one small fault at a time is put into a copy of the tree, and the tests must fail.

``python tools/mutations.py`` draws mutants with a seed, the same number for each part of the tree. For each of them, it runs the
nearest tests first, then the others without Spark, then the others with Spark, and stops at the first failure. ``--also`` names
tests that are not part of ``make test``: they run for the mutants that all others let live, so the last line says what these
tests alone find. A run that was interrupted is continued.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCALA = Path("jvm-shim/src/main/scala")
PARTS: dict[str, tuple[str, ...]] = {
    "core": ("python/strandline/time", "python/strandline/tracker", "python/strandline/dataflow"),
    "channel": ("python/strandline/delta", "python/strandline/channel"),
    "ingest": ("python/strandline/ingest", "connector/pyspark_strandline/write/ingest.py"),
    "source": ("connector/pyspark_strandline/read",),
    "sink": ("connector/pyspark_strandline/write", "connector/pyspark_strandline/operators"),
    "shim": (str(SCALA),),
}
NEAR_IN_SPARK = {
    part: [str(next((ROOT / "tests/pyspark_strandline").rglob(f"test_{name}.py")).relative_to(ROOT)) for name in names]
    for part, names in {
        "ingest": ("ingest",),
        "source": ("source", "offset", "native_scan", "moving", "statistics", "unread_rows"),
        "sink": ("sink", "sink_files", "completion", "operators", "moving"),
    }.items()
}
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
    **{b: a for a, b in ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot))},
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
HANGS = 2400
"""After how many seconds a test command is stopped. Then the mutant counts as killed."""
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
IN_SCALA = (
    *(pair for a, b in ((" < ", " <= "), (" > ", " >= "), (" == ", " != "), (" && ", " || ")) for pair in ((a, b), (b, a))),
    *((" + 1", " - 1"), (".exists(", ".forall("), (".forall(", ".exists("), (".isEmpty", ".nonEmpty"), (".nonEmpty", ".isEmpty")),
    *(("= true", "= false"), ("= false", "= true"), (".min", ".max"), (".max", ".min"), ("filterNot(", "filter(")),
)


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is, the code there, and what stands there instead."""

    part: str
    file: str
    line: int
    before: str
    after: str
    text: str
    """The whole mutated file."""

    @property
    def name(self) -> str:
        """Return the place and the fault in one line."""
        return f"{self.file}:{self.line}: {self.before[:80]} -> {self.after[:80]}"


@dataclass
class Fate:
    """What became of a mutant: the test command that failed (``None``: all passed), and its first failure."""

    mutant: str
    part: str
    killed_by: str | None
    first: str
    seconds: float


def python_mutants(part: str, file: Path) -> Iterator[Mutant]:
    """Yield every mutant of a Python file."""
    tree = ast.parse(file.read_text())
    for number, node in enumerate(ast.walk(tree)):
        for variant in range(_variants(node)):
            changed = copy.deepcopy(tree)
            twin = next(other for i, other in enumerate(ast.walk(changed)) if i == number)
            before = ast.unparse(node)
            _mutate(twin, variant)
            yield Mutant(
                part, str(file.relative_to(ROOT)), getattr(node, "lineno", 0), before, ast.unparse(twin), ast.unparse(changed)
            )


def _variants(node: ast.AST) -> int:
    if isinstance(node, ast.Compare):
        return sum(type(op) in SWAPPED for op in node.ops)
    if isinstance(node, ast.BoolOp | ast.UnaryOp | ast.BinOp):
        return int((isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)) or type(node.op) in SWAPPED)
    if isinstance(node, ast.Constant):
        return int(isinstance(node.value, bool) or (isinstance(node.value, int) and abs(node.value) < 3))
    if isinstance(node, ast.Call):
        return int(isinstance(node.func, ast.Name) and node.func.id in CALLED)
    return int(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))


def _mutate(node: ast.AST, variant: int) -> None:
    if isinstance(node, ast.Compare):
        places = [i for i, op in enumerate(node.ops) if type(op) in SWAPPED]
        node.ops[places[variant]] = SWAPPED[type(node.ops[places[variant]])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.UnaryOp):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        node.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else int(str(node.value)) + 1
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        node.func.id = CALLED[node.func.id]
    elif isinstance(node, ast.Expr):
        node.value = ast.Constant(None)


def scala_mutants(part: str, file: Path) -> Iterator[Mutant]:
    """Yield every mutant of a Scala file. Those that do not compile are found out when they are built."""
    lines = file.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines):
        code = re.split(r"//|\"", line)[0]  # what follows a text is left alone
        if code.lstrip().startswith(("*", "/*", "import ")):
            continue
        for old, new in IN_SCALA:
            for found in re.finditer(re.escape(old) + (r"\b" if old[-1].isalpha() else ""), code):
                changed = line[: found.start()] + new + line[found.end() :]
                text = "".join([*lines[:number], changed, *lines[number + 1 :]])
                yield Mutant(part, str(file.relative_to(ROOT)), number + 1, line.strip(), changed.strip(), text)


def drawn(part: str, choice: random.Random) -> Iterator[Mutant]:
    """Yield mutants of a part in random order: a file with its code's length as weight, and one of its mutants."""
    paths = [
        path
        for name in PARTS[part]
        for path in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.[ps]*")))
    ]
    files = [path for path in paths if path.suffix in (".py", ".scala")]
    if part == "sink":
        files = [path for path in files if "ingest" not in path.name]
    weights = [path.stat().st_size for path in files]
    while True:
        (file,) = choice.choices(files, weights)
        if found := list((scala_mutants if file.suffix == ".scala" else python_mutants)(part, file)):
            yield choice.choice(found)


def commands(mutant: Mutant, share: int, also: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the names and commands of the tests, the nearest and fastest first."""
    plain = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", "300"]
    pytest = [*plain, "--draw", str(share)]  # an option of the tests' folder, which doctests do not load
    without, with_spark = [*pytest, "-m", "not soak and not spark"], [*pytest, "-n", "3", "--dist", "loadfile"]
    build = [sys.executable, "tools/build_shim.py"]
    if mutant.part == "shim":
        suites = ".".join(Path(mutant.file).relative_to(SCALA).parent.parts)
        yield "near", [*build, "package", f"testOnly {suites}.*"]
    else:
        yield "build", build  # the mutant before may have been one of the shim
        near = re.sub(r"^(python|connector)/", "tests/", mutant.file).rsplit("/", 1)[0]
        while not (ROOT / near).exists():
            near = near.rsplit("/", 1)[0]
        yield "doctests", [*plain, "-m", "not soak and not spark", mutant.file]
        yield "near", [*without, near]
    if mutant.part in NEAR_IN_SPARK:
        yield "near in Spark", [*with_spark, "-m", "not soak and spark", *NEAR_IN_SPARK[mutant.part]]
    if mutant.part == "shim":
        yield "scala", [*build, "test"]
    else:
        reaching = ["tests/pyspark_strandline"] if mutant.file.startswith("connector") else []  # the core imports none of it
        yield "core", [*without, "-n", "2", *reaching]
    if not mutant.file.startswith(("python/strandline/tracker", "python/strandline/dataflow")):  # no Spark reaches these
        yield "spark", [*with_spark, "-m", "not soak and spark"]
    if also:
        yield "also", [*with_spark, *also]


def ended(command: list[str], **options: Any) -> int:
    """Run a command and return its exit status: 1 if it did not end in time. Whatever it started ends with it."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        return process.wait(HANGS)
    except subprocess.TimeoutExpired:
        return 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def fate(mutant: Mutant, tree: Path, also: list[str], skipped: list[str], log: Path, share: int = 1) -> Fate:
    """Run the tests on the mutant until one fails."""
    began, target = time.monotonic(), tree / mutant.file
    original = target.read_text()
    target.write_text(mutant.text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / name) for name in ("python", "connector"))}
    name = mutant.name
    try:
        for command, arguments in commands(mutant, share, also):
            if command in skipped:
                continue
            with log.open("w") as out:
                code = ended(arguments, cwd=tree, env=environment, stdout=out, stderr=out)
            if "pytest" in arguments and code not in (0, 1, 2, 5):
                raise SystemExit(f"error: pytest ended with {code}, so nothing is known of {name}; see {log}")
            if code not in (0, 5):  # 5: no test there
                if "Compilation failed" in log.read_text():
                    command = "build"
                first = re.search(r"^(FAILED|ERROR|\[info\] - .*FAILED|.*Error:) ?.*$", log.read_text(), re.MULTILINE)
                return Fate(name, mutant.part, command, first[0][:200] if first else "", round(time.monotonic() - began))
        return Fate(name, mutant.part, None, "", round(time.monotonic() - began))
    finally:
        target.write_text(original)


def main() -> None:
    """Draw mutants and print the fate of each; the last line counts them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=10, help="mutants of each part (default: 10)")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--also", default="", help="arguments of pytest: tests that run for the mutants that live")
    parser.add_argument("--skip", nargs="*", default=[], help="what does not run, by its name in ``killed_by``: spark, scala")
    parser.add_argument(
        "--draw", type=int, default=1, help="run one of so many of the long tests, as `make test` does (default: all)"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".build" / "mutations", help="the copy, and what is known so far")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    tree, known = folder / "tree", folder / f"fates-{arguments.seed}.jsonl"
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--force", "--detach", str(tree)], cwd=ROOT, check=True)
        jars = "connector/pyspark_strandline/jars"
        subprocess.run(["cp", "-rp", str(ROOT / jars), str(tree / jars)], check=True)
    fates = [Fate(**json.loads(line)) for line in known.read_text().splitlines()] if known.exists() else []
    for part in arguments.parts:
        mutants = drawn(part, random.Random(f"{arguments.seed} {part}"))
        seen = set()
        while len(seen) < arguments.each:
            mutant = next(mutants)
            name = mutant.name
            done = next((found for found in fates if found.mutant == name), None)
            if done is None:
                done = fate(mutant, tree, shlex.split(arguments.also), arguments.skip, folder / "log", arguments.draw)
                fates.append(done)
                with known.open("a") as file:
                    file.write(json.dumps(asdict(done)) + "\n")
            if done.killed_by != "build":  # it does not compile, so it is no mutant
                seen.add(name)
                print(json.dumps(asdict(done)), flush=True)
    counts = Counter(found.killed_by or "lived" for found in fates if found.killed_by != "build")
    print(json.dumps({"mutants": counts.total(), **counts}))


if __name__ == "__main__":
    main()
