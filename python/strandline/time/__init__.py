"""Times: domains, antichains, path summaries, and their form in Arrow. The only Strandline module it imports is the errors."""
