"""Imported by the server that forks the processes of a test: each has what takes seconds at its first use."""

from __future__ import annotations

import torch
import trained_here
import wide_courses

from vsetune.data.stored.vocabulary import tokenise

__all__ = ["trained_here", "wide_courses"]

torch.optim.Adam([torch.zeros(1, requires_grad=True)])
tokenise("a red circle")
