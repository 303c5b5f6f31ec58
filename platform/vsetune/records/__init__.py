"""Records of studies: their logs, which are the only source of truth, and everything derived from a log."""
