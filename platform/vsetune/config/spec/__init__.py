"""What every spec shares: base class, reading and writing, paths, addresses with passwords. No component, no torch."""
