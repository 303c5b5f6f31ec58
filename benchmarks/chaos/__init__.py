"""`make chaos`: sweeps of short trials under kills and outages, held against the same sweeps undisturbed.

Everything is done from outside, as a person, a scheduler or a broken machine would: through the command line, signals,
files and databases. Only `chaos.run` is meant to be started.
"""
