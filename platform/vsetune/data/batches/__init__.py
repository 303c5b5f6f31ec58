"""Batches of a split, for training and for evaluation."""
