"""The plans that `make test` draws from: in these every operator, domain, sink, mode and value of a setting comes."""

# With one less, something is missing.
VARIED = (
    2259,
    2265,
    2269,
    2283,
    2291,
    2296,
    2308,
    2322,
    2339,
    2367,
    2424,
    2502,
    2559,
    2608,
    2609,
    2625,
    2823,
)
BARE = (500061, 500130, 500141)
"""Bare plans that failed once."""
