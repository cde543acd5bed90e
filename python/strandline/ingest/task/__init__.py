"""The code that runs in a task: separates late rows, counts rows, writes files. Imports ``late``, settings and policies."""
