"""An ingested data set on disk: manifest, shards, everything read from them checked."""
