"""Data derived from captions: words, word pieces, semantic vectors, parses."""
