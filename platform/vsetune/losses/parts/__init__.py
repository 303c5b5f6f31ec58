"""Code shared by several losses."""
