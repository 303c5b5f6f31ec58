"""The command line: parse, call, print. Noun then verb."""
