"""Which trials of a cell stop early: one rule per file, all with the methods of `StoppingRule`."""
