"""The one place for writing files whole, for locks and for hashes. Knows nothing of the files' content."""
