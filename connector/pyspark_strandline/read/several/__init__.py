"""Several channels as one source: at one consistent cut, with one offset."""
