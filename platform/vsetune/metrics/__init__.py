"""Metrics: scores in, numbers out. Pure functions; a non-finite score is an error, never a rank.

An evaluation goes through score_blocks, positives -> ranks -> recall; a training curve through curves -> efficiency.
"""
