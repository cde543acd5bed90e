"""Loops: graphs that grow day by day, and a recursion over an organisation."""
