"""``strandline replay`` and ``strandline compare``."""
