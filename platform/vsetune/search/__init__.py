"""Search spaces and samplers: decides what to try, never trains."""
