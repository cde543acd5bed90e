"""What the driver decides about a batch: capabilities, ownership, idleness. Imports ``task`` and the packages below it."""
