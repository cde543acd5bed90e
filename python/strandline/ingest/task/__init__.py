"""What runs in a task: telling late rows from those in time, counting, writing files. Imports ``late``, settings and policies."""
