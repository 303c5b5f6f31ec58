"""A network scored: validation, pair scores, the numbers of the best checkpoint."""
