"""What is tried next in a cell: one way of drawing per file, all with the methods of `Sampler`."""
