"""What runs on the cluster: places attempts, retries, resumes. The only package that knows Ray."""
