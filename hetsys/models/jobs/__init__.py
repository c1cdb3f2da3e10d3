"""Training jobs that really train: six families of small models, alone or as gangs, on this machine's devices."""
