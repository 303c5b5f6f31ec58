"""What several networks share."""
