"""Is tonight like the nights before? Noise bands, a sequential test, and the promised rate of false alarms."""
