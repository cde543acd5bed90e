"""What user code returns, checked against its schema: single values, columns of values, and Arrow arrays. Imports no operator."""
