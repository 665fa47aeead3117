"""What holds for every test: no property is judged by how long an example took on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("retinue", deadline=None)
settings.load_profile("retinue")
