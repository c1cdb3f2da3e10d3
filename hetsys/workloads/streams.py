"""Named, independent streams of random numbers, so that switching one source of chance on leaves all others as they were."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from hetsys.core.errors import ConfigError


def stream(seed: int, name: str) -> np.random.Generator:
    """The generator of `name` under `seed`; different names or seeds give independent streams. `seed` is 0 or more."""
    if seed < 0:
        raise ConfigError("seed", seed, "must be 0 or more")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(crc32(name.encode()),)))
