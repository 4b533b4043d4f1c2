"""Return of free memory from the C library's allocator to the system."""

import ctypes


def trim_heap() -> None:
    """Return the free memory of the allocator's arenas to the system (malloc_trim(3)).

    Updates and answers allocate tensors of all sizes in many threads, and glibc keeps the gaps that they
    leave. Without this call a trainer of the laptop job held 1.2 GiB, used 0.35 GiB of them, and grew every
    hour; engines grew as well. The call takes about 40 ms. It does nothing with another C library.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
