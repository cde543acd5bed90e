"""Digests of rows, by which a repeated batch is compared with the committed one. Imports nothing else of the channel."""
