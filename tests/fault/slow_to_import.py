"""A module that takes longer to import than the hang deadline of the supervisor that imports it."""

import time

time.sleep(4.0)
