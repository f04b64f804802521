"""A configuration, or what is wrong with one, as JSON and as lines, without printing it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from kvbench.errors import EXIT_MEASUREMENT, EXIT_OK, EXIT_USAGE
from kvbench.settings.finding import SEVERITIES, SettingsFinding, Severity
from kvbench.settings.forms import FORMS, as_json, command_line, kubernetes
from kvbench.settings.reading import FoundSettings
from kvbench.settings.writing import Written
from kvbench.units import format_count


@dataclass(frozen=True, slots=True)
class Checked:
    """A file's configurations with their findings; ``model`` is the one that they were held against, if any."""

    file: str
    engine_version: str
    model: str | None
    results: tuple[tuple[FoundSettings, tuple[SettingsFinding, ...]], ...]

    def count(self, severity: Severity) -> int:
        """How many findings are so severe."""
        return sum(finding.severity == severity for _, findings in self.results for finding in findings)

    def exit_code(self, *, strict: bool) -> int:
        """2 with an error, 3 with a warning when ``strict``, else 0; notes never count."""
        if self.count("error"):
            return EXIT_USAGE
        return EXIT_MEASUREMENT if strict and self.count("warning") else EXIT_OK


def written_json(written: Written, model: str, tp: int) -> dict[str, object]:
    """The JSON object of ``kvbench settings``."""
    return {
        "engine": written.engine,
        "engine_version": written.engine_version,
        "model": model,
        "tp": tp,
        "config": written.config,
        "environment": written.environment,
        "command_line": command_line(written, model),
        "kubernetes": kubernetes(written, model),
        "reasons": [asdict(reason) for reason in written.reasons],
        "notes": list(written.notes),
    }


def written_text(written: Written, model: str, form: str | None) -> str:
    """One form alone, or all of them with the reasons."""
    if form is not None:
        return FORMS[form](written, model).rstrip("\n")
    reasons = [f"  {reason.key} = {reason.value}: {reason.reason}." for reason in written.reasons]
    parts = [
        "Command line\n\n" + command_line(written, model),
        "JSON of --kv-transfer-config\n\n" + as_json(written),
        "Kubernetes (part of a pod's spec)\n\n" + kubernetes(written, model).rstrip("\n"),
        "Why\n\n" + "\n".join([*reasons, *(f"  {note}." for note in written.notes)]),
    ]
    return "\n\n".join(parts)


def checked_json(checked: Checked) -> dict[str, object]:
    """The JSON object of ``kvbench settings --check``."""
    return {
        "file": checked.file,
        "engine_version": checked.engine_version,
        "model": checked.model,
        "configurations": [
            {
                "where": found.where,
                "connector": _connector(found),
                "findings": [asdict(finding) for finding in findings],
            }
            for found, findings in checked.results
        ],
        **{f"{severity}s": checked.count(severity) for severity in SEVERITIES},
    }


def checked_lines(checked: Checked) -> list[str]:
    """One line for each finding, and one that counts them."""
    lines = []
    for found, findings in checked.results:
        place = f"{checked.file}, {found.where}" if len(checked.results) > 1 else checked.file
        lines += [_line(place, finding) for finding in findings]
    counts = ", ".join(_counted(checked.count(severity), severity) for severity in SEVERITIES)
    model = "" if checked.model is None else f" and {checked.model}"
    return [*lines, f"{counts}, against vLLM {checked.engine_version}{model}."]


def _line(place: str, finding: SettingsFinding) -> str:
    stop = "" if finding.hint.endswith("?") else "."
    return f"{place}: {finding.severity}: {finding.where}: {finding.message}; {finding.hint}{stop} [{finding.code}]"


def _counted(count: int, severity: Severity) -> str:
    return f"{format_count(count)} {severity}{'' if count == 1 else 's'}"


def _connector(found: FoundSettings) -> str | None:
    connector = found.config.get("kv_connector")
    return connector if isinstance(connector, str) else None
