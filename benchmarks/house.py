"""How long the way through bwbench/ is, counted: files, lines, names that say two things, stops of one idea.

    python benchmarks/house.py [--root FOLDER] [--json FILE] [--list WHAT]

``--list`` prints what a figure counts: ``stops`` (short modules with one importer, which lies in their folder),
``modules`` and ``classes`` (names that stand twice), ``untyped`` (lines with ``dict[str, Any]``), ``mappings`` (with
``Mapping[str, Any]``), ``arms`` (lines that compare an arm's name), ``circles``, ``inner`` (imports inside functions,
each with its reason), ``long`` (files over 500 lines), ``wide`` (classes by methods).

The reason of an import inside a function is ``extra`` (of an optional dependency), ``heavy: NAME`` (that package, which
the file does not load anyway, is what it brings, by itself or through the modules of ours that it names), or
``commented`` (a comment at its line, or at one of the imports right above it, says why); else ``no reason``.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import statistics
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SHORT = 110  # lines: what is shorter and has one reader next door belongs to it
LONG = 500
NAMES_OF_ARMS = re.compile(r"""["'](single|no-communication)["']""")
# What takes 15 ms or more to load.
HEAVY = {"jinja2", "matplotlib", "numpy", "pandas", "plotly", "psutil", "pyarrow", "pydantic", "pydantic_core",
         "pyroute2", "rich", "scipy", "sklearn", "torch", "torchvision", "yaml"}  # fmt: skip
EXTRAS = {"asyncssh", "hivemind", "lightning", "ray"}  # as in pyproject.toml
DECLARES_ARMS = ("base/registry.py", "experiment/config/method_names.py")  # where the two get their names


@dataclass
class Module:
    """One Python file.

    Attributes:
        imports: modules of the package that it imports, functions and TYPE_CHECKING included.
        inner: imports inside functions.
        loads: names of what is loaded with it, ours and others'.
    """

    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: set[str] = field(default_factory=set)
    inner: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    loads: set[str] = field(default_factory=set)

    @property
    def num_lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def read(root: Path) -> dict[str, Module]:
    """Every module below ``root``, by dotted name."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        name = ".".join((root.name, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, path, text, ast.parse(text))
    for module in modules.values():
        typed = _typing_only(module.tree)
        for node, is_inner in _imports(module.tree):
            for target in _targets(node, modules):
                if target != module.name:
                    module.imports.add(target)
            if is_inner:
                module.inner.append(node)
            elif node not in typed:
                module.loads.update(_brought(node, modules))
    return modules


def _imports(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inside = {id(inner) for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, id(node) in inside


def _typing_only(tree: ast.Module) -> set[ast.AST]:
    """What stands below ``if TYPE_CHECKING``."""
    checks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING")]
    return {inner for check in checks for statement in check.body for inner in ast.walk(statement)}


def _brought(node: ast.Import | ast.ImportFrom, modules: dict[str, Module]) -> set[str]:
    """What an import loads: modules of ours with the packages around them, and the names of other packages."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    around = {name[:end] for name in (*names, *_targets(node, modules)) for end in _ends(name)}
    return {name for name in around if name in modules or "." not in name}


def _ends(name: str) -> list[int]:
    return [*(place for place, letter in enumerate(name) if letter == "."), len(name)]


def loaded_with(names: set[str], modules: dict[str, Module]) -> set[str]:
    """``names``, and all that modules of ours among them load in turn."""
    found, ahead = set(names), list(names)
    while ahead:
        name = ahead.pop()
        new = modules[name].loads - found if name in modules else set()
        found |= new
        ahead += new
    return found


def inner_imports(modules: dict[str, Module]) -> Iterator[tuple[Module, ast.Import | ast.ImportFrom, str]]:
    """Every import inside a function, with its reason."""
    for module in modules.values():
        loaded, commented = loaded_with({module.name}, modules), _commented_lines(module.text)
        excused = 0  # the line after an import that is commented: the comment holds for those right below it
        for node in sorted(module.inner, key=lambda node: node.lineno):
            brought = loaded_with(_brought(node, modules), modules)
            heavy = sorted((brought & HEAVY) - loaded)
            lines = range(node.lineno - 1, (node.end_lineno or node.lineno) + 1)
            if brought & EXTRAS:
                reason = "extra"
            elif heavy:
                reason = f"heavy: {', '.join(heavy)}"
            elif commented & set(lines) or excused == node.lineno:
                reason, excused = "commented", lines.stop
            else:
                reason = "no reason"
            yield module, node, reason


def _commented_lines(text: str) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


def _targets(node: ast.Import | ast.ImportFrom, modules: dict[str, Module]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    elif node.module in modules:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name if name in modules else node.module for name in names)


def stops(modules: dict[str, Module]) -> list[str]:
    """Short modules that one module alone imports, which lies in the same folder."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for target in module.imports if not module.is_package else ():  # a package's face only hands names on
            importers[target].add(module.name)
    found = []
    for module in modules.values():
        by = importers[module.name]
        if module.is_package or module.num_lines >= SHORT or len(by) != 1:
            continue
        if modules[next(iter(by))].path.parent == module.path.parent:
            found.append(f"{module.path} ({module.num_lines}) <- {modules[next(iter(by))].path.name}")
    return found


def twice(names: Iterator[tuple[str, Path]]) -> list[str]:
    """Names that stand in several places, with these."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, path in names:
        places[name].append(str(path))
    return [f"{name}: {', '.join(paths)}" for name, paths in sorted(places.items()) if len(paths) > 1]


def circles(modules: dict[str, Module]) -> list[str]:
    """Groups of modules that import one another, packages' faces (``__init__.py``) left out (Tarjan)."""
    graph = {m.name: sorted(t for t in m.imports if not modules[t].is_package) for m in modules.values()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = []
            while not group or group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(", ".join(sorted(group)))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def lines_with(text: str, modules: dict[str, Module]) -> list[str]:
    return [
        f"{module.path}:{number}: {line.strip()}"
        for module in modules.values()
        for number, line in enumerate(module.text.splitlines(), 1)
        if text in line
    ]


def is_code(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def code_lines(module: Module) -> int:
    """Lines that are neither blank, nor a comment, nor part of a docstring."""
    documented = set()
    for node in ast.walk(module.tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and body:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                documented.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = module.text.splitlines()
    return sum(is_code(line) for number, line in enumerate(lines, 1) if number not in documented)


def import_lines(module: Module) -> int:
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node, _ in _imports(module.tree))


def measure(root: Path) -> dict[str, list[str]]:
    """What ``--list`` shows, by its name."""
    modules = read(root)
    plain = [module for module in modules.values() if not module.is_package]
    classes = [(n.name, m.path) for m in modules.values() for n in m.tree.body if isinstance(n, ast.ClassDef)]
    methods = Counter(
        {
            f"{m.path}:{n.name}": sum(isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) for item in n.body)
            for m in modules.values()
            for n in m.tree.body
            if isinstance(n, ast.ClassDef)
        }
    )
    scripts = [path for path in sorted(root.rglob("*")) if path.suffix in (".py", ".js", ".html", ".j2")]
    return {
        "stops": stops(modules),
        "modules": twice((module.path.name, module.path) for module in plain),
        "classes": twice(iter(classes)),
        "untyped": lines_with("dict[str, Any]", modules),
        "mappings": lines_with("Mapping[str, Any]", modules),
        "arms": [
            f"{path}:{number}: {line.strip()}"
            for path in scripts
            if not str(path).endswith(DECLARES_ARMS)
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if NAMES_OF_ARMS.search(line)
        ],
        "circles": circles(modules),
        "inner": [f"{m.path}:{n.lineno}: {ast.unparse(n)}  # {why}" for m, n, why in inner_imports(modules)],
        "long": [f"{m.path}: {m.num_lines}" for m in modules.values() if m.num_lines > LONG],
        "wide": [f"{count} {name}" for name, count in methods.most_common(10)],
    }


def summary(root: Path, found: dict[str, list[str]]) -> dict[str, float | str]:
    """One figure a line."""
    modules = read(root)
    sizes = [module.num_lines for module in modules.values()]
    longest = max(modules.values(), key=lambda module: module.num_lines)
    reasons = Counter(line.rpartition("  # ")[2].partition(":")[0] for line in found["inner"])
    return {
        "Python files": len(modules),
        "lines": sum(sizes),
        "lines of code": sum(map(code_lines, modules.values())),
        "lines of imports": sum(map(import_lines, modules.values())),
        "median file": statistics.median(sizes),
        "longest file": f"{longest.num_lines} {longest.path}",
        f"modules with one importer next door, under {SHORT} lines": len(found["stops"]),
        "module names that stand twice": len(found["modules"]),
        "class names that stand twice": len(found["classes"]),
        "lines with dict[str, Any]": len(found["untyped"]),
        "lines with Mapping[str, Any]": len(found["mappings"]),
        "files that compare an arm's name": len({line.split(":")[0] for line in found["arms"]}),
        "circles": len(found["circles"]),
        "imports inside functions": len(found["inner"]),
        **{f"  {reason}": reasons[reason] for reason in ("heavy", "extra", "commented", "no reason")},
        "largest class, by methods": found["wide"][0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1] / "bwbench")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", dest="what")
    arguments = parser.parse_args()
    root = Path(arguments.root)
    found = measure(root)
    if arguments.what:
        print("\n".join(found[arguments.what]))
        return
    figures = summary(root, found)
    for name, value in figures.items():
        print(f"{name:60} {value}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
