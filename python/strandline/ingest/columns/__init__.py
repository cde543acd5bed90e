"""What a column of the rows means: times, also as text. Imports nothing else of the ingest."""
