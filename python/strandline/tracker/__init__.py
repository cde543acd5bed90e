"""Timely's progress tracker: graphs, capabilities, reachability, scopes. Imports ``time`` only."""
