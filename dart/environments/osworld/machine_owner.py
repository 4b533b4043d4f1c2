"""The owner of a machine: a file in the guest, into which each reset writes a random number of its own.

A guest serves every program that reaches it. A second program that resets a machine changes the desktop under
an episode of the first, and no call fails. So actions and evaluations read the file. With another number in
it, the episode has lost the machine (`MachineTaken`). The same holds without the file, because a machine that
another program has just reverted has none.
"""

OWNER_FILE = "~/.dartrl-owner"
"""The file in the guest. It is not in ~/.cache, which a policy may empty, nor among the user's own files."""

READS_OWNER = f"""
import os
try:
    with open(os.path.expanduser({OWNER_FILE!r})) as file:
        owner = file.read()
except OSError:
    owner = ""
"""
"""Python code for the guest that reads the number into the variable ``owner``; empty without a file."""

TAKEN = "another program has reset this machine"
"""Error of a program in the guest that was sent for another owner."""
