"""Writing channels: the streaming sink, and the ingest of outside streams."""
