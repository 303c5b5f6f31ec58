"""Inspection of a data set: checks against its manifest, and pictures of its content."""
