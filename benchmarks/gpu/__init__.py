"""What `benchmarks/gpu_check.py` is made of: each module one question about training on a device."""
