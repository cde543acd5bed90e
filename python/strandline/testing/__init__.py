"""Compares the tracker with systems that we did not write: recorded traces, and a simulated cluster.

Imports ``time`` and ``tracker``.
"""
