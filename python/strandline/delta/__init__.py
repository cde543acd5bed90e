"""Delta tables: the log, storages, data files and their statistics. Knows no progress statement. Imports only the errors."""
