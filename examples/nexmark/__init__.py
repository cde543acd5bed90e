"""Nexmark: auctions, bids and persons, the benchmark of stream processors, over channels. See docs/nexmark.md."""
