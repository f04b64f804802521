"""matplotlib's SVG made fit for a page: inline, without metadata or outside references, themed by CSS variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

# Groups with such an id carry, in hexadecimal, where their numbers come from.
SOURCE_PREFIX = "src-"
_COLOUR = re.compile(r"#[0-9a-f]{6}")
# matplotlib writes the shorthand up to 3.10 and separate properties from 3.11 on.
_FONT = re.compile(r"(font: (?:\w+ )*[\d.]+px|font-family:) [^;]+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECIMALS = re.compile(r"(\.\d{2})\d+")
_DROPPED = ("metadata", "style")


def inlined(text: str, key: str, label: str, css: Mapping[str, str]) -> str:
    """The SVG for an HTML page: ``key`` makes its ids unique there, ``css`` replaces placeholder colours."""
    root = ElementTree.fromstring(text)
    for element in root.iter():
        _plain_names(element)
        _themed(element, css)
        _shorter(element)
        for child in [child for child in element if str(child.tag).rpartition("}")[2] in _DROPPED]:
            element.remove(child)
    _own_ids(root, key)
    _without_blanks(root)
    box = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update({"viewBox": box, "role": "img", "aria-label": label})
    return ElementTree.tostring(root, encoding="unicode")


def _plain_names(element: Element) -> None:
    """Names without namespaces, as HTML parsers want them."""
    element.tag = str(element.tag).rpartition("}")[2]
    for name in [name for name in element.attrib if name.startswith("{")]:
        element.set(name.rpartition("}")[2], element.attrib.pop(name))


def _themed(element: Element, css: Mapping[str, str]) -> None:
    for name in ("style", "fill", "stroke"):
        value = element.get(name)
        if value is not None:
            value = _FONT.sub(r"\1 var(--font)", value)
            element.set(name, _COLOUR.sub(lambda match: css.get(match.group(0), match.group(0)), value))


def _shorter(element: Element) -> None:
    """Coordinates to a hundredth of a point: half the size, and no eye sees the rest."""
    for name in ("d", "x", "y", "transform"):
        value = element.get(name)
        if value is not None:
            element.set(name, " ".join(_DECIMALS.sub(r"\1", value).split()))


def _without_blanks(root: Element) -> None:
    for element in root.iter():
        element.text = element.text if element.text and element.text.strip() else None
        element.tail = "\n" if element.tail and element.tag == "g" else None


def _own_ids(root: Element, key: str) -> None:
    """Sources become <title> elements; other ids get the key in front where something refers to them, or go."""
    used = {name for element in root.iter() for name in _references(element)}
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name.startswith(SOURCE_PREFIX):
            title = Element("title")
            title.text = bytes.fromhex(name.removeprefix(SOURCE_PREFIX)).decode()
            element.insert(0, title)
        elif name in used:
            element.set("id", f"{key}-{name}")
        if element.get("href", "").startswith("#"):
            element.set("href", f"#{key}-{element.attrib['href'][1:]}")
        for attribute, value in element.attrib.items():
            element.set(attribute, _REFERENCE.sub(rf"url(#{key}-\g<1>)", value))


def _references(element: Element) -> list[str]:
    found = [match for value in element.attrib.values() for match in _REFERENCE.findall(value)]
    return [*found, *([element.attrib["href"].removeprefix("#")] if "href" in element.attrib else [])]
