"""vsetune: fair, resumable comparison of losses and networks for image-text retrieval."""

__version__ = "0.2.0"
