"""Data sets: raw readers, ingest to shards, vocabulary, caption semantics, batches."""
