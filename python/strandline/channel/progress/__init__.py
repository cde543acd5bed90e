"""What is known from statements: every producer's state, and the frontier. Imports ``statements``, ``time`` and ``delta``."""
