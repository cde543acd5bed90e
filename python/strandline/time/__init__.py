"""Times: domains, antichains, path summaries, and how Arrow carries them. Imports nothing of Strandline but the errors."""
