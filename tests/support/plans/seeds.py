"""The plans of `make test`: in these every operator, domain, sink, mode and value of a setting comes."""

# The union of two sets of seeds, each of which has all of it.
VARIED = (
    2254,
    2259,
    2265,
    2269,
    2274,
    2281,
    2283,
    2291,
    2296,
    2308,
    2313,
    2322,
    2339,
    2363,
    2367,
    2376,
    2382,
    2391,
    2424,
    2460,
    2462,
    2474,
    2502,
    2527,
    2559,
    2597,
    2608,
    2609,
    2625,
)
BARE = (500061, 500130, 500141)
"""Bare plans that failed once."""
