"""What people watch a cluster with: panels, alert rules and scrape configuration, all made from our table of metrics."""
