"""Delta tables: the log, storage, data files and their statistics. Knows no progress statements. Imports only the errors."""
