"""What runs on the cluster: places attempts, retries, resumes. The only package that knows Ray."""

import os

# Ray reads this once, when it is imported: whoever reaches an open Ray port can run code, so tokens are on unless
# somebody says RAY_AUTH_MODE=disabled on purpose.
os.environ.setdefault("RAY_AUTH_MODE", "token")
