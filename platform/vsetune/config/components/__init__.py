"""Losses and networks as study files name them: one folder each, found where it lies."""
