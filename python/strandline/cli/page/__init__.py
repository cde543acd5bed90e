"""The commands of the page. It imports what the other commands share; the extra ``page`` only when a command runs."""
