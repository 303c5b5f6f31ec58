"""The base of every spec: base class, reading and writing, paths, addresses with passwords. No component, no torch."""
