"""Path summaries as a log and Spark's columns have them: what a plan does to a time on the way from a source to a column."""
