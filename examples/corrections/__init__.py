"""Late flights come back: hourly counts by a guessed delay, corrected exactly once."""
