"""Creating and writing channels: producers, appends, transactions. Imports ``progress`` and the packages below it."""
