"""How a channel is created and written: producers, appends, transactions. Imports ``progress`` and what is below it."""
