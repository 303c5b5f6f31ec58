"""Explanations of a trained network: its rankings, the wrong items ranked too high, and heat maps of images."""
