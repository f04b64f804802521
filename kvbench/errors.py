"""Errors that are shown as one sentence and the next step, grouped by whose turn it is to act."""

from __future__ import annotations

EXIT_OK = 0
EXIT_NOT_VIABLE = 1
EXIT_USAGE = 2
EXIT_MEASUREMENT = 3
EXIT_CRASH = 70
EXIT_INTERRUPTED = 130
# EX_IOERR of sysexits.h, whose EX_SOFTWARE is 70.
EXIT_OUTPUT = 74
# 128 + SIGPIPE, as a shell reports a program whose reader went away.
EXIT_READER_GONE = 141


class KvbenchError(Exception):
    """Base of every error that the user can act on; the text ends with what to do next."""

    exit_code = EXIT_USAGE


class UsageError(KvbenchError):
    """The command line asks for something that cannot be done."""


class ModelConfigError(KvbenchError):
    """A model cannot be sized: its config is unknown, ambiguous, or not found."""


class InputFileError(KvbenchError):
    """A file that the user named is missing, damaged, or not what it should be."""


class ResultFileError(InputFileError):
    """A run directory cannot be read, for example because a newer kvbench wrote it."""


class TierError(KvbenchError):
    """The tier cannot be measured as asked: rights, space, O_DIRECT, or the kind of file system."""


class ToolError(KvbenchError):
    """A program that kvbench drives is missing or too old."""


class MeasurementError(KvbenchError):
    """A measurement was started and did not succeed."""

    exit_code = EXIT_MEASUREMENT


class RemovalHangs(MeasurementError):
    """All that was asked for is done, but the tier does not answer while what was made on it is removed."""


class Interrupted(KvbenchError):
    """The user or the system asked kvbench to stop (SIGINT, SIGTERM); what finished is saved."""

    exit_code = EXIT_INTERRUPTED
