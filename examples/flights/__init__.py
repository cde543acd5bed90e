"""Real flights, counted exactly: three airports replay 2013 into a channel, and Spark says of each hour when it is complete."""
