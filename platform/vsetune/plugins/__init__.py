"""Other people's components: found, imported, checked and hashed. They are then known like ours."""
