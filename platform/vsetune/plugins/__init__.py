"""Plugin components: found, imported, checked and hashed. They can then be named like built-in components."""
