"""Recording a stream from outside: each row gets a time of a clock that never ties, in the commit that takes it in."""
