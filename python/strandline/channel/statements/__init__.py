"""Progress statements in commits, and the log that carries them. Imports ``time`` and ``delta``."""
