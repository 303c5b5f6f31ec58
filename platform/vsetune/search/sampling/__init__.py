"""Samplers of the next configuration of a cell: one per file, all with the methods of `Sampler`."""
