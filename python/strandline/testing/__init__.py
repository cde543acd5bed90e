"""What holds the tracker against systems that we did not write: recorded traces, and a simulated
cluster. Imports ``time`` and ``tracker``.
"""
