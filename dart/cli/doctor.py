"""`dartrl doctor`."""
