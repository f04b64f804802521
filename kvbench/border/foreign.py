"""What another program wrote, read leniently."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Foreign(BaseModel):
    """A part of a file that another program wrote: unknown keys are ignored, and a key may begin with ``model_``."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, protected_namespaces=())
