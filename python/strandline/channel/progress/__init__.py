"""Every producer's state, and the frontier, as known from statements. Imports ``statements``, ``time`` and ``delta``."""
