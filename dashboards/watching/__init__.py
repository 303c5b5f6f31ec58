"""What people watch a cluster with: panels, alert rules and scrape configuration, made from our table of metrics."""
