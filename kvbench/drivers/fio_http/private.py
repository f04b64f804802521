"""The keys of an S3 service on their way through fio: into its environment, and out of everything that it prints.

fio writes the values of all options into its JSON, also of those that came from its environment (fio 3.33 and 3.42).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvbench.drivers.fio.run import Finished
from kvbench.drivers.fio_http.job import KEY_ID, SECRET, TOKEN
from kvbench.errors import MeasurementError, TierError
from kvbench.formats.fio import read as fio_format
from kvbench.formats.fio import text as fio_text

# The engine copies "AWS4" and the key into 128 bytes and cuts what is longer (engines/http.c).
_LONGEST_SECRET = 120
# fio replaces words like $pagesize after it has put the variable in, and strips blanks; '#' and ';' pass (fio 3.33).
_UNSAFE = "$"


@dataclass(frozen=True, slots=True)
class Keys:
    """An access key, its secret, and a session token or None; never shown."""

    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, found: Mapping[str, str | None]) -> Keys:
        """The keys that the standard chain gave; TierError when fio would take one of them for another."""
        keys = cls(found["access_key_id"] or "", found["secret_access_key"] or "", found.get("token"))
        for value in keys.all():
            plain = value.isascii() and value.isprintable() and " " not in value
            if not plain or _UNSAFE in value:
                raise TierError(
                    "a key of the S3 service holds a character that fio cannot be given ($, a blank, or one beyond "
                    "ASCII); leave out --driver fio, or use other keys."
                )
        if len(keys.secret) > _LONGEST_SECRET:
            raise TierError("the secret key is too long for fio's http engine; leave out --driver fio.")
        return keys

    def all(self) -> tuple[str, ...]:
        """Every value that must not be seen."""
        return (self.key_id, self.secret, *([self.token] if self.token else []))

    def environment(self) -> dict[str, str]:
        """The variables that the job file names."""
        return {KEY_ID: self.key_id, SECRET: self.secret, **({TOKEN: self.token} if self.token else {})}

    def require_absent(self, text: str) -> str:
        """``text`` itself; MeasurementError when it holds one of the keys, so that it is not written down."""
        if any(value in text or json.dumps(value)[1:-1] in text for value in self.all() if value):
            raise MeasurementError(
                "fio printed a key of the S3 service where none belongs, so its output was not kept; please report it"
            )
        return text


# What fio is given when it only parses a job file: what it says of one may repeat values.
EXAMPLE = Keys("EXAMPLE", "EXAMPLE", "EXAMPLE")


def cleaned(finished: Finished, keys: Keys) -> Finished:
    """``finished`` with every option removed that holds a key; MeasurementError when a key is left in it."""
    found = fio_text.find(finished.output)
    documents = fio_format.documents(finished.output)
    text = finished.output
    if documents:
        text = found.preamble + "\n" + json.dumps(fio_format.redact_json(documents[-1]), indent=1) + "\n"
    return replace(finished, output=keys.require_absent(text), errors=keys.require_absent(finished.errors))
