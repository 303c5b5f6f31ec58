"""Searches in virtual time on made-up landscapes with a known optimum, by the ledger and rules of real studies."""
