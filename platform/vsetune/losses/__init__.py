"""Losses: similarity in, one number out. One folder per loss: `spec.py` (hyperparameters, formula, source; no torch),
`loss.py` (pure functions with the formula, and a module that keeps its schedule). `loss_building.build_loss` makes one.
"""
