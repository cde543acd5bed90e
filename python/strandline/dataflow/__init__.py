"""A dataflow engine in one process, over the tracker: the reference for scopes and notification.

Imports ``time`` and ``tracker``.
"""
