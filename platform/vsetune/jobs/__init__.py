"""What runs on the cluster: places attempts, retries, resumes. The only package that knows Ray."""

import os

# Ray reads these once, when it is imported. Whoever reaches an open Ray port can run code, so tokens are on unless
# somebody says RAY_AUTH_MODE=disabled on purpose.
os.environ.setdefault("RAY_AUTH_MODE", "token")
# What becomes of a trial or of Ray is told by us, in one line; Ray would print pages of its servers' state beside it.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
