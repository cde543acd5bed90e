"""Writing channels: the streaming sink, and the ingest of external streams."""
