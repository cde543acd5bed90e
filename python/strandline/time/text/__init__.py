"""Moments and integers as text: the calendar, and the grammar."""
