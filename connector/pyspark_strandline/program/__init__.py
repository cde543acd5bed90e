"""Programs on Spark: rules compiled to one loop, one query."""
