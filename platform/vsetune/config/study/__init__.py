"""A study, the cells it is resolved into, and the spec of one trial."""
