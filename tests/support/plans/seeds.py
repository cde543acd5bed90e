"""The plans of `make test`: in these every operator, domain, sink, mode and value of a setting comes."""

VARIED = range(2249, 2306)
BARE = (500061, 500130, 500141)
"""Bare plans that failed once."""
