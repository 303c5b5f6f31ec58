"""Hyperparameters of the networks, one file each."""
