"""Nightly sweeps: the same cells every night, compared with their own history."""
