"""Simulation of the search in virtual time: results and cost of a study's settings where the optimum is known.

It is part of `jobs` because it uses the ledger and the scheduler of real studies, not copies of them.
"""
