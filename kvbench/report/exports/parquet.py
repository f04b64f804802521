"""The table of measured points as Parquet, every column with one type in every file."""

from __future__ import annotations

import io
from collections.abc import Sequence

from kvbench import __version__
from kvbench.decide.runs import LoadedRun
from kvbench.errors import UsageError
from kvbench.report.exports.table import table

# Counts and sizes; every other number is a measure.
_WHOLE = frozenset({"io_bytes", "jobs", "ios"})


def as_parquet(runs: Sequence[LoadedRun]) -> bytes:
    """The table as a Parquet file, unknown values null."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError("--form parquet needs pyarrow: pip install 'kvbench[parquet]', or take --form csv.") from None
    sheet = table(runs)
    kinds = [
        pyarrow.int64() if column.key in _WHOLE else pyarrow.float64() if column.right else pyarrow.string()
        for column in sheet.columns
    ]
    arrays = [
        pyarrow.array([row[at].value for row in sheet.rows], kind, from_pandas=True) for at, kind in enumerate(kinds)
    ]
    fields = [pyarrow.field(column.key, kind) for column, kind in zip(sheet.columns, kinds, strict=True)]
    schema = pyarrow.schema(fields, metadata={"made_by": f"kvbench export {__version__}"})
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), buffer)
    return buffer.getvalue()
