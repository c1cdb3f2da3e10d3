"""Measurements that need no result folder: `python -m benchmarks.NAME`. Numerical libraries get one thread."""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before anything imports numpy
