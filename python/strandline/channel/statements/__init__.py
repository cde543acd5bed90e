"""What commits say: progress statements, and the log that carries them. Imports ``time`` and ``delta``."""
