"""Error numbers by which the system says that a disk, not the program or the network, is the cause."""

import errno

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers for a disk, or a quota of it, that is full."""

DISK_ERRORS = (*FULL_DISK, errno.EIO, errno.EROFS)
"""Error numbers for failures of the machine's storage."""
