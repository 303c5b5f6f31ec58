"""Queries to the best network of a recorded attempt: captions retrieve images, features of images retrieve captions."""
