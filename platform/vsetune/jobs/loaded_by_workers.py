"""What a worker imports before it is given a trial, without the collector of cycles looking through it meanwhile.

Imports make some 300,000 objects that stay, and the collector goes through all of them time and again: an eighth of the
time that a worker takes to start. It is told to leave them alone for good, and looks after what trials make as before.
"""

from __future__ import annotations

import gc

gc.disable()
try:
    from vsetune.jobs import trainable  # noqa: F401
finally:
    gc.freeze()
    gc.enable()
