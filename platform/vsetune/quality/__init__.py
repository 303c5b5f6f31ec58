"""What must hold of every loss and every network, ours or anybody's: one list each, of small checks with a name.

`loss_checks.LOSS_CHECKS` and `network_checks.NETWORK_CHECKS` are run by `vsetune losses check`, by `vsetune networks
check`, by the tests of the built-in components, and by the test that `vsetune losses new` writes.
"""
