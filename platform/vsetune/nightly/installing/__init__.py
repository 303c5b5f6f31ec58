"""What starts a night every night: an entry for cron, systemd, GitHub Actions or Kubernetes; no secret is in any."""
