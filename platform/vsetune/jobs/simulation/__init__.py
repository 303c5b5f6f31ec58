"""The search in virtual time: what a study's settings find and cost where the best configuration is known.

It stands in `jobs` because it drives the ledger and the scheduler of real studies, not copies of them.
"""
