"""Draws cases of path summaries and records what the specification says of them.

The file is read by the Scala tests too, so that both sides evaluate the same steps alike. The same seed gives the same file.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import path_summaries
from path_summaries import Step
from strandline.time.antichain import Antichain
from strandline.time.domain import Lex, Product, Scalar, Time, TimeDomain, parse_domain

FILE = Path(__file__).parents[1] / "golden" / "path-summaries" / "cases.jsonl.gz"
SEED = 14
FRONTIERS, ROWS = 3000, 1500
DOMAINS = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint64",
    *["timestamp"] * 5,
    "product(a int8, b int8)",
    "product(epoch int64, iter int64)",
    "product(event timestamp, n int32)",
    "product(a uint64, b int8, c int16)",
    "lex(a int8, b int8)",
    "lex(tick int64, stratum int64, iter int64)",
    "lex(tick uint64, iter uint64)",
    "lex(event timestamp, n int8)",
    "product(a int8, l lex(b int8, c int8))",
    "product(event timestamp, l lex(outer uint64, inner uint64))",
    "lex(p product(a int8, b int8), c int8)",
    "lex(a int8, p product(b int8, q product(c int8, d uint64)), e int8)",
    "lex(a int8, l lex(b int8, c uint64), d int32)",
    "product(p product(a int16, b uint64), l lex(q product(c int8, d int8), e int8))",
]
HOUR = 3_600_000_000


def value(r: Random, domain: TimeDomain) -> Time:
    """A time near an end of its domain, near zero, or anywhere."""
    if not isinstance(domain, Scalar):
        return tuple(value(r, part) for _, part in domain.coordinates)
    low, high = domain.minimum, domain.maximum
    near = r.choice((low, high, 0, 0, 0, r.randint(low, high), r.randint(low, high), HOUR if high > HOUR else 0))
    return min(max(near + r.choice((0, 0, 1, -1, r.randint(-9, 9))), low), high)


def leaf(r: Random, domain: TimeDomain) -> tuple[list[str], Scalar]:
    path: list[str] = []
    while not isinstance(domain, Scalar):
        name, domain = r.choice(domain.coordinates)
        path.append(name)
    return path, domain


def move(r: Random, domain: TimeDomain) -> Step:
    """A shift or a truncation, of any size up to the widest domain's."""
    path, scalar = leaf(r, domain)
    at = {"coordinate": ".".join(path)} if path else {}
    width = scalar.maximum - scalar.minimum
    if r.random() < 0.6:
        far = (HOUR, width // 2, width - 1, width, width + 1, (1 << 64) - 1)
        size = r.choice(far) if r.random() < 0.35 else r.randint(0, 9)
        return {"shift": min(size, (1 << 64) - 1) * r.choice((1, 1, -1)), **at}
    unit = r.choice((1, 2, 7, r.randint(2, 60), HOUR, 100, 300, (1 << 63) - 1))
    offset = r.choice((0, 0, 1, 3, -5, unit // 2, 15 * 60 * 1_000_000, (1 << 63) - 1, -(1 << 63)))
    return {"truncate": unit, "offset": offset, **at}


def window(r: Random) -> Step:
    bound, offset = r.choice(("start", "end", "time")), r.choice((0, 0, 3, -5, HOUR // 4))
    if r.random() < 0.25:
        return {"window": r.choice(("end", "time")), "session": True}
    slide = r.choice((1, 7, r.randint(1, 60), HOUR, (1 << 63) - 1))
    width = min(slide * r.choice((1, 1, 2, 3)) + r.choice((0, 0, 1, slide // 2)), (1 << 63) - 1)
    if r.random() < 0.1:
        width = max(slide // 2, 1)  # between two windows there are times in none
    return {"window": bound, "width": width, "slide": slide, "offset": offset}


def project(r: Random, domain: Product | Lex) -> Step:
    names = [name for name, _ in domain.parts]
    if isinstance(domain, Lex):
        kept = names[: r.randint(1, len(names))]
    else:
        kept = [name for name in names if r.random() < 0.6] or [r.choice(names)]
    return {"coordinate": kept[0]} if len(kept) == 1 and r.random() < 0.8 else {"coordinates": kept}


def entry(r: Random, domain: TimeDomain) -> Step:
    """Into a loop: one coordinate more, or several, at any depth."""
    added = r.sample([("u", "int64"), ("v", "uint64"), ("w", "int8"), ("x", "product(y int16, z uint64)")], r.choice((1, 1, 2)))
    more = ", ".join(f"{name} {part}" for name, part in added)
    if len(domain.coordinates) > 1 and r.random() < 0.6:
        return {"enter": f"{str(domain)[:-1]}, {more})"}
    inner = f"{r.choice(('product', 'lex'))}(o {domain}, {more})"
    return {"enter": inner if r.random() < 0.8 else f"{r.choice(('product', 'lex'))}(first {inner}, last int32)"}


def draw(r: Random, domain: TimeDomain, of_rows: bool, length: int) -> list[Step]:
    steps: list[Step] = []
    for _ in range(length):
        chance = r.random()
        if isinstance(domain, (Product, Lex)) and chance < 0.25:
            step = project(r, domain)
        elif 0.8 < chance < 0.9 and not any("enter" in before for before in steps):
            step = entry(r, domain)
        elif str(domain) == "timestamp" and not of_rows and chance < 0.6:
            step = window(r)
        elif not of_rows and chance > 0.9:
            step = {"least": [[move(r, domain) for _ in range(r.randint(0, 2))] for _ in range(r.randint(2, 3))]}
        else:
            step = move(r, domain)
        steps.append(step)
        domain = path_summaries.target(step, domain)
    return steps


def cases(seed: int) -> Iterator[dict[str, Any]]:
    """Every case, as it is written."""
    r = Random(seed)  # reproducible, not secret
    for number in range(FRONTIERS + ROWS):
        text = r.choice(DOMAINS)
        domain, of_rows = parse_domain(text), number >= FRONTIERS
        steps = draw(r, domain, of_rows, r.choice((1, 1, 1, 2, 2, 3, 4)))
        if of_rows:
            time = value(r, domain)
            moved = path_summaries.rows(steps, domain, time)
            yield {"domain": text, "steps": steps, "time": time, "moved": "overflow" if moved is None else moved}
        else:
            frontier = Antichain(domain, [value(r, domain) for _ in range(r.choice((0, *[1] * 8, 2, 2, 3, 3, 4)))])
            found = path_summaries.results(steps, frontier)
            yield {
                "domain": text,
                "steps": steps,
                "frontier": frontier.to_json(),
                "target": str(found.domain),
                "result": found.to_json(),
            }


def lines(seed: int) -> Iterator[str]:
    """The file's lines: how it was made, then a case each."""
    yield json.dumps({"made by": "tests/support/record_path_summaries.py", "seed": seed, "cases": FRONTIERS + ROWS})
    yield from (json.dumps(case, separators=(",", ":")) for case in cases(seed))


def read() -> list[str]:
    """The lines that are recorded."""
    return gzip.decompress(FILE.read_bytes()).decode().splitlines()


if __name__ == "__main__":
    chosen = int(sys.argv[1]) if len(sys.argv) > 1 else SEED
    made = "".join(f"{line}\n" for line in lines(chosen))
    FILE.write_bytes(gzip.compress(made.encode(), mtime=0))
    print(f"seed {chosen}: {made.count(chr(10)) - 1} cases, {FILE.stat().st_size} bytes in {FILE.name}")
