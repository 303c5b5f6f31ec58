"""Execution on a cluster: places attempts, retries and resumes them. The only package that uses Ray."""

import os

# Ray reads these once, when it is imported. Anyone who reaches an open Ray port can run code, so tokens are on unless
# the user sets RAY_AUTH_MODE=disabled.
os.environ.setdefault("RAY_AUTH_MODE", "token")
# vsetune reports the end of a trial or of Ray in one line; Ray would add pages on the state of its servers.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
# What vsetune sends is what a study needs; a plugin's .gitignore is about its history.
os.environ.setdefault("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")
