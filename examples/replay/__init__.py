"""Last week's flights through a changed rule."""
