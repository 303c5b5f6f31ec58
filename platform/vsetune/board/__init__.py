"""Boards: finished trials ranked, compared and shown. Different protocols are never compared."""
