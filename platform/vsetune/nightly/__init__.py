"""Nightly sweeps: the same cells every night, held against their own history."""
