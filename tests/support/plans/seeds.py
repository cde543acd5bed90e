"""The plans of `make test`: in these every operator, domain, sink, mode and value of a setting comes."""

# Sixteen seeds that have all of it, and four more.
VARIED = (
    2259,
    2265,
    2269,
    2281,
    2283,
    2291,
    2296,
    2308,
    2322,
    2339,
    2367,
    2391,
    2424,
    2474,
    2502,
    2527,
    2559,
    2608,
    2609,
    2625,
)
BARE = (500061, 500130, 500141)
"""Bare plans that failed once."""
