"""The search in virtual time: what a study's settings find and cost where the best configuration is known."""
