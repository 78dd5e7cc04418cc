"""The headers' declarations as plain data: functions, types and versioned lookups.

The C is parsed by pycparser; this module turns its tree into the few things the emitters need.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pycparser import c_ast, c_parser

# C base types by width on the two 64-bit Linux ABIs we support; both agree on all of these.
PRIMITIVES = {
    "char": "c_char",
    "signed char": "i8",
    "unsigned char": "u8",
    "short": "i16",
    "unsigned short": "u16",
    "int": "i32",
    "unsigned": "u32",
    "unsigned int": "u32",
    "long": "i64",
    "unsigned long": "u64",
    "long long": "i64",
    "unsigned long long": "u64",
    "float": "f32",
    "double": "f64",
    "void": "c_void",
    "size_t": "usize",
    "int8_t": "i8",
    "uint8_t": "u8",
    "int16_t": "i16",
    "uint16_t": "u16",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
    "uintptr_t": "usize",
}


@dataclass(frozen=True)
class Function:
    """One exported function; types are Rust spellings."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    returns: str


@dataclass
class Header:
    """The declarations of one header."""

    functions: dict[str, Function] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    """typedef name -> Rust type."""
    records: dict[str, c_ast.Struct | c_ast.Union] = field(default_factory=dict)
    """struct or union with a body, by its name in Rust code."""
    opaque: set[str] = field(default_factory=set)
    """structs without a body."""
    constants: dict[str, int] = field(default_factory=dict)
    """enumerators, in order of declaration."""
    lookups: dict[tuple[str, int, str], tuple[str, ...]] = field(default_factory=dict)
    """(base name, CUDA version, "" | "ptds" | "ptsz") -> parameter types, from cudaTypedefs.h."""

    def read(self, text: str) -> None:
        """Adds the declarations of a preprocessed header."""
        tree = c_parser.CParser().parse(text)
        for item in tree.ext:
            if isinstance(item, c_ast.Typedef):
                self._typedef(item)
            elif isinstance(item, c_ast.Decl):
                if isinstance(item.type, c_ast.FuncDecl):
                    self._function(item)
                else:
                    self._named(item.type, None)

    def _typedef(self, item: c_ast.Typedef) -> None:
        pointer = item.type
        if isinstance(pointer, c_ast.PtrDecl) and isinstance(pointer.type, c_ast.FuncDecl):
            versioned = re.fullmatch(r"PFN_(\w+?)_v(\d+)(?:_(ptds|ptsz))?", item.name)
            parameters, returns = self._signature(pointer.type)
            if versioned:
                base, version, threading = versioned.groups()
                key = (base, int(version), threading or "")
                self.lookups[key] = tuple(kind for _, kind in parameters)
            else:
                arguments = ", ".join(kind for _, kind in parameters)
                result = "" if returns == "c_void" else f" -> {returns}"
                self.aliases[item.name] = f'Option<unsafe extern "C" fn({arguments}){result}>'
            return
        if item.name in PRIMITIVES:
            return
        inner = item.type.type if isinstance(item.type, c_ast.TypeDecl) else None
        if isinstance(inner, c_ast.Struct | c_ast.Union) and inner.decls is not None:
            self._named(inner, item.name)
            if inner.name and inner.name != item.name:
                self.aliases[item.name] = inner.name
            return
        kind = self.rust(item.type)
        if kind != item.name:
            self.aliases[item.name] = kind

    def _function(self, item: c_ast.Decl) -> None:
        parameters, returns = self._signature(item.type)
        self.functions[item.name] = Function(item.name, parameters, returns)

    def _signature(self, kind: c_ast.FuncDecl) -> tuple[tuple[tuple[str, str], ...], str]:
        parameters = []
        for index, parameter in enumerate(kind.args.params if kind.args else ()):
            if isinstance(parameter, c_ast.EllipsisParam):
                raise ValueError("variadic functions are not supported")
            rust = self.rust(parameter.type)
            if rust == "c_void":  # f(void)
                continue
            parameters.append((_identifier(parameter.name or f"arg{index}"), rust))
        return tuple(parameters), self.rust(kind.type)

    def _named(self, kind: c_ast.Node, name: str | None) -> None:
        """Records the body of a struct, union or enum where it first appears."""
        if isinstance(kind, c_ast.TypeDecl):
            kind = kind.type
        if isinstance(kind, c_ast.Enum) and kind.values is not None:
            following = 0
            for entry in kind.values.enumerators:
                if entry.value is not None:
                    following = self.evaluate(entry.value)
                self.constants[entry.name] = following
                following += 1
        elif isinstance(kind, c_ast.Struct | c_ast.Union) and kind.decls is not None:
            known = kind.name or name
            if known is None:
                raise ValueError("a record without any name at the top level")
            self.opaque.discard(known)
            self.records[known] = kind

    def evaluate(self, node: c_ast.Node) -> int:
        """The value of a constant expression."""
        match node:
            case c_ast.Constant():
                text = node.value.rstrip("uUlL")
                return ord(text[1]) if text.startswith("'") else int(text, 0)
            case c_ast.ID():
                return self.constants[node.name]
            case c_ast.UnaryOp(op="sizeof"):
                return self._size(self.rust(node.expr))
            case c_ast.UnaryOp():
                value = self.evaluate(node.expr)
                return {"-": -value, "~": ~value, "+": value}[node.op]
            case c_ast.Cast():
                return self.evaluate(node.expr)
            case c_ast.BinaryOp():
                left, right = self.evaluate(node.left), self.evaluate(node.right)
                operations = {
                    "+": left + right,
                    "-": left - right,
                    "*": left * right,
                    "|": left | right,
                    "&": left & right,
                    "<<": left << right if right >= 0 else 0,
                }
                return operations[node.op]
        raise ValueError(f"not a constant expression: {node}")

    def _size(self, kind: str) -> int:
        while kind in self.aliases:
            kind = self.aliases[kind]
        if kind.startswith(("*", "Option")):
            return 8
        sizes = {"c_char": 1, "usize": 8, "f32": 4, "f64": 8}
        return sizes[kind] if kind in sizes else int(kind[1:]) // 8

    def rust(self, kind: c_ast.Node) -> str:
        """The Rust spelling of a C type where it is used."""
        match kind:
            case c_ast.PtrDecl():
                if isinstance(kind.type, c_ast.FuncDecl):
                    parameters, returns = self._signature(kind.type)
                    arguments = ", ".join(rust for _, rust in parameters)
                    result = "" if returns == "c_void" else f" -> {returns}"
                    return f'Option<unsafe extern "C" fn({arguments}){result}>'
                mutability = "const" if "const" in getattr(kind.type, "quals", []) else "mut"
                return f"*{mutability} {self.rust(kind.type)}"
            case c_ast.ArrayDecl():  # only as a parameter: it decays to a pointer
                mutability = "const" if "const" in getattr(kind.type, "quals", []) else "mut"
                return f"*{mutability} {self.rust(kind.type)}"
            case c_ast.TypeDecl() | c_ast.Typename():
                return self.rust(kind.type)
            case c_ast.IdentifierType():
                return _primitive(kind.names)
            case c_ast.Enum():
                self._named(kind, None)
                return "u32"
            case c_ast.Struct() | c_ast.Union():
                if kind.decls is not None:
                    self._named(kind, None)
                elif kind.name not in self.records:
                    self.opaque.add(kind.name)
                return str(kind.name)
        raise ValueError(f"no Rust spelling for {kind}")


def _primitive(names: list[str]) -> str:
    text = " ".join(names)
    if text in PRIMITIVES:
        return PRIMITIVES[text]
    if len(names) == 1:
        return text
    ordered = sorted(names, key=("unsigned", "signed", "short", "long", "int", "char").index)
    silent = {"int"} if "char" in ordered else {"int", "signed"}
    return PRIMITIVES[" ".join(word for word in ordered if word not in silent) or "int"]


def _identifier(name: str) -> str:
    reserved = {"type", "ref", "in", "mod", "fn", "final", "box", "priv", "loop", "where", "use"}
    return f"{name}_" if name in reserved else name


def resolve_lookups(header: Header) -> list[tuple[str, int, str, str]]:
    """Which exported symbol answers ``cuGetProcAddress(base, version)``: rows for the stub driver.

    cudaTypedefs.h names the versions and signatures, cuda.h the symbols; both number the same ABIs
    of one function in the same order, oldest first.
    """
    grouped: dict[tuple[str, str], list[int]] = {}
    for base, version, threading in header.lookups:
        grouped.setdefault((base, threading), []).append(version)
    rows = []
    for (base, threading), versions in sorted(grouped.items()):
        suffix = f"_{threading}" if threading else ""
        pattern = re.compile(rf"{re.escape(base)}(?:_v(\d+))?{suffix}")
        found = [m for m in map(pattern.fullmatch, header.functions) if m]
        symbols = [m.string for m in sorted(found, key=lambda m: int(m[1] or 1))]
        pairs = list(zip(sorted(versions), symbols, strict=False))
        if len(versions) != len(symbols):
            pairs = _by_signature(header, base, threading, sorted(versions), symbols)
        rows += [(base, version, threading, symbol) for version, symbol in pairs]
    return rows


def _by_signature(
    header: Header, base: str, threading: str, versions: list[int], symbols: list[str]
) -> list[tuple[int, str]]:
    """Pairs by types where the numbers do not suffice: the first symbol that takes the same types."""
    pairs = []
    remaining = list(symbols)
    for version in versions:
        wanted = [_plain(header, kind) for kind in header.lookups[base, version, threading]]
        for symbol in remaining:
            have = [_plain(header, kind) for _, kind in header.functions[symbol].parameters]
            if have == wanted:
                pairs.append((version, symbol))
                remaining = remaining[remaining.index(symbol) + 1 :]
                break
        else:
            raise ValueError(f"{base} {version} {threading}: no symbol of {symbols} takes {wanted}")
    return pairs


def _plain(header: Header, kind: str) -> str:
    """A type with every alias followed, so that CUdevice_v1 and CUdevice compare equal."""
    stars, _, base = kind.rpartition(" ")
    while base in header.aliases:
        more, _, base = header.aliases[base].rpartition(" ")
        stars = f"{stars} {more}".strip()
    return f"{stars} {base}".replace("const", "mut").strip()
