"""Loops over records from outside: planes that come back, and stop orders that wake up."""
