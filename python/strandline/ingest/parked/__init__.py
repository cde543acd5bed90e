"""Rows that wait beyond ``maxAhead``: where they are, and when they join. Imports ``recorded`` and what is below it."""
