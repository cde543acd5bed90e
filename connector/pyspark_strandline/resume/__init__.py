"""A query whose checkpoint is lost goes on with its output, whose log says how far it had read. Reading and writing import it."""
