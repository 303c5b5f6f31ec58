"""One owner each for writing files whole, for locks and for hashes. Knows nothing of what stands in the files."""
