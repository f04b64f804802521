"""The gate as JUnit XML, which every CI system shows: a failure is "not viable", an error is "cannot say"."""

from __future__ import annotations

from xml.etree import ElementTree

from kvbench.report.gate import Gate


def junit(result: Gate, suite: str) -> str:
    """One test case for each criterion."""
    failures = sum(criterion.ok is False for criterion in result.criteria)
    errors = sum(criterion.ok is None for criterion in result.criteria)
    counts = {"tests": str(len(result.criteria)), "failures": str(failures), "errors": str(errors)}
    root = ElementTree.Element("testsuites", {"name": "kvbench gate", **counts})
    element = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts, "skipped": "0", "time": "0"})
    for criterion in result.criteria:
        case = ElementTree.SubElement(
            element, "testcase", {"classname": "kvbench.report.gate", "name": criterion.name, "time": "0"}
        )
        text = f"observed: {criterion.observed}\nwanted: {criterion.wanted}"
        if criterion.ok is None:
            ElementTree.SubElement(case, "error", {"type": "cannot say", "message": criterion.observed}).text = text
        elif not criterion.ok:
            ElementTree.SubElement(case, "failure", {"type": "not viable", "message": criterion.observed}).text = text
        else:
            ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
