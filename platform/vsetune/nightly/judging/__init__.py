"""Comparison of tonight with the nights before: noise bands, a sequential test, a promised rate of false alarms."""
