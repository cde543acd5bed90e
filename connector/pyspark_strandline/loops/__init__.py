"""Loops: queries that read what they write, until nothing comes round any more."""
