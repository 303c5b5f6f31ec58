"""Code shared by several networks."""
