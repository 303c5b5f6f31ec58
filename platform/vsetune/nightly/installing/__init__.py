"""Entries that start a night every day, for cron, systemd, GitHub Actions or Kubernetes. They contain no secrets."""
