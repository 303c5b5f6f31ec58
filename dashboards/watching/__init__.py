"""Panels, alert rules and scrape configuration for watching a cluster, made from our table of metrics."""
