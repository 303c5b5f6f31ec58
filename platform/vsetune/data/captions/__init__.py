"""What is made of captions: words, word pieces, semantic vectors, parses."""
