"""What a batch of a query has read beside its streams, and digests of what it wrote. Imports nothing else of the channel."""
