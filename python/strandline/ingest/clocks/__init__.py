"""When a batch was planned, and the clocks by which silence counts. Imports nothing else of the ingest."""
