"""Checks that every loss and every network must pass, built in or from a plugin: one list each of small named checks.

`loss_checks.LOSS_CHECKS` and `network_checks.NETWORK_CHECKS` are run by `vsetune losses check`, by `vsetune networks
check`, by the tests of the built-in components, and by the test that `vsetune losses new` writes.
"""
