"""One channel that a query writes: the files of its tasks, the checks before a commit, the commit itself."""
