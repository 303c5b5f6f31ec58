"""What studies leave: their logs, which are the truth about them, and what is made of a log."""
