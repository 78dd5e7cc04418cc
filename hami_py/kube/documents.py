"""Reads YAML or JSON files, as users of Kubernetes write them, into dicts and lists."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hami_py.errors import InvalidValue, state_errors

if TYPE_CHECKING:
    import yaml
    from yaml.error import Mark

_SURROGATE = re.compile("[\ud800-\udfff]")

_MOST_COPIED = 1_000_000
"""The most characters and entries that a file's aliases may expand to. Aliases may be nested, so a
few lines can expand to more than fits into memory; real files expand to some thousands."""


def read_file(path: Path) -> bytes:
    """Reads a file.

    Raises:
        StateError: it cannot be read.
    """
    with state_errors(str(path), "name a file that can be read"):
        return path.read_bytes()


def read_documents(path: Path, *, unique: bool = False) -> Iterator[object]:
    """The documents of a file, except empty ones.

    ``unique``: a repeated key in a mapping is an error; else the last one counts.

    Raises:
        ImportError: PyYAML is missing.
        InvalidValue: the file is not valid YAML; the field has the line.
        StateError: the file cannot be read.
    """
    # PyYAML is a dependency of the kubernetes client.
    import yaml  # noqa: PLC0415

    data = read_file(path)
    try:
        for document in yaml.load_all(data, _loader(unique)):
            if document is not None:
                yield document
    except RecursionError:
        raise InvalidValue(str(path), "too many levels", "nest it less deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _malformed(path, data, error) from None


def _loader(unique: bool) -> type[yaml.SafeLoader]:
    """PyYAML's safe loader with limits, which joins a character that JSON wrote as two escapes."""
    import yaml  # noqa: PLC0415

    class Loader(yaml.SafeLoader):
        def __init__(self, stream: bytes) -> None:
            super().__init__(stream)
            self._weight = self._copied = 0
            self._weights: dict[str, int] = {}

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            is_alias = isinstance(event, yaml.AliasEvent)
            if is_alias:
                self._count_alias(event.anchor, event.start_mark)
                return super().compose_node(parent, index)
            before = self._weight
            self._weight += 1 + len(getattr(event, "value", ""))
            self._weights.pop(event.anchor, None)
            node = super().compose_node(parent, index)
            if event.anchor is not None:
                self._weights[event.anchor] = self._weight - before
            return node

        def _count_alias(self, anchor: str, mark: Mark) -> None:
            weight = self._weights.get(anchor)
            if weight is None and anchor in self.anchors:
                problem = "an alias is inside of the value that it names: write the value out"
            else:
                self._weight += weight or 0
                self._copied += weight or 0
                if self._copied <= _MOST_COPIED:
                    return
                problem = "the aliases expand to too much: write the values out"
            raise yaml.composer.ComposerError(problem=problem, problem_mark=mark)

        def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
            # PyYAML's constructors raise various errors if a value does not match its tag.
            try:
                return super().construct_object(node, deep)
            except (ArithmeticError, AttributeError, LookupError, ValueError):
                kind = node.tag.rpartition(":")[2]
                problem = f"it is not a valid {kind}: if it is text, quote it, without a tag"
                raise yaml.constructor.ConstructorError(
                    problem=problem, problem_mark=node.start_mark
                ) from None

        def construct_mapping(
            self, node: yaml.MappingNode, deep: bool = False
        ) -> dict[Hashable, object]:
            if unique and isinstance(node, yaml.MappingNode):
                self._check_unique(node)
            return super().construct_mapping(node, deep)

        def _check_unique(self, node: yaml.MappingNode) -> None:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                if key.value in seen:
                    problem = "the key is repeated"
                    raise yaml.constructor.ConstructorError(
                        problem=problem, problem_mark=key.start_mark
                    )
                seen.add(key.value)

    def text(loader: Loader, node: yaml.ScalarNode) -> str:
        value = str(loader.construct_scalar(node))
        if not _SURROGATE.search(value):
            return value
        try:
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            problem = "half of a character is escaped without the other half"
            raise yaml.constructor.ConstructorError(
                problem=problem, problem_mark=node.start_mark
            ) from None

    Loader.add_constructor("tag:yaml.org,2002:str", text)
    return Loader


def _malformed(path: Path, data: bytes, error: yaml.YAMLError | ValueError) -> InvalidValue:
    """The error with the line and the problem that the parser reports."""
    fix = "write well-formed YAML or JSON in UTF-8"
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return InvalidValue(str(path), " ".join(str(error).split()), fix)
    lines = data.decode(errors="replace").splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    problem = " ".join(str(getattr(error, "problem", "") or "it is incomplete").split())
    field = f"{path}: line {mark.line + 1}, column {mark.column + 1}"
    return InvalidValue(field, line.strip(), f"{problem}; {fix}")
