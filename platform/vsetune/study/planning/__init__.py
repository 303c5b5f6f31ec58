"""Prediction of a study's time and cost before it runs, from a few real steps of every cell."""
