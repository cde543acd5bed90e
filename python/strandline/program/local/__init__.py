"""Runs of programs in one process, over the core's dataflow.

Imports the plans of ``program``.
"""
