"""What study files and recipes are read into: typed specs with their defaults, and the study made of them."""
