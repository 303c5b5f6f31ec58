"""Scoring of a network: validation, pair scores, the scores of the best checkpoint."""
