"""A run on many machines, on Ray. Only modules of this package import Ray, each when it is used."""
