"""Typed specs of data, networks, losses, training and studies: defaults, validation, reading and writing."""
