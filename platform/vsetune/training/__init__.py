"""The one train loop, checkpoints, validation; runs one attempt."""
