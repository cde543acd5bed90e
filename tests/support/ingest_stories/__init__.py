"""Stories of ingests: a specification, a store that fails, a machine that tells stories to both and to the product."""
