"""Functions for queries: notification, processors, and functions of times."""
