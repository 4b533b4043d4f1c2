"""A run on many machines, connected by Ray. Only this package imports Ray, in the functions that need it."""
