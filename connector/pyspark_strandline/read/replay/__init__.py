"""Replays: what a channel has recorded, with its pauses, up to an end."""
