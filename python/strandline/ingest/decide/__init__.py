"""What the driver decides of a batch: capabilities, ownership, idleness. Imports ``task`` and what is below it."""
