"""Weights from elsewhere, under our names: of released implementations, and of files we wrote ourselves."""
