"""A study, the cells it is resolved into, and what one trial of them is told."""
