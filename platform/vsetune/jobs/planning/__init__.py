"""What a study will take before anything of it runs: a few real steps of every cell, and arithmetic."""
