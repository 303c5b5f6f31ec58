"""Losses and networks by the names that study files use: one folder each, found by its presence."""
