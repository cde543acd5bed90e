"""Bounds on an ingest's rows: how far ahead of the clock they may be, and how many of them may be set aside."""
