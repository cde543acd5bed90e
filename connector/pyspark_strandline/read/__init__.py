"""Reading channels: the streaming source, batch reads, and the native scan."""
