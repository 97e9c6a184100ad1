"""When this process began its work, in ``time.monotonic`` seconds; imported before anything that takes long."""

import time

BIRTH = time.monotonic()
