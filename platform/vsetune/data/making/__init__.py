"""From raw data to shards: recipes, readers of raw layouts, features, the embedded scenes."""
