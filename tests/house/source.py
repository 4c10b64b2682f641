"""The package's source as syntax trees, for the tests of the house."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import turnkit_django

ROOT = Path(turnkit_django.__file__).parent

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[str, ast.Module]:
    """All modules by path within the package, migrations left out."""
    paths = sorted(ROOT.rglob("*.py"))
    return {
        name: ast.parse(path.read_text())
        for path in paths
        if not (name := path.relative_to(ROOT).as_posix()).startswith("migrations/")
    }


def outer_functions(tree: ast.Module) -> dict[str, Function]:
    """Functions of a module and methods of its classes, by name; what is nested in them belongs to them."""
    found: dict[str, Function] = {}
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        found |= {f"{prefix}{item.name}": item for item in inner if isinstance(item, Function)}
    return found


def called(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Each call inside, with the last part of what is called."""
    for item in ast.walk(node):
        if isinstance(item, ast.Call):
            yield last_name(item.func), item


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def names(node: ast.AST) -> set[str]:
    """Every name and every attribute that is mentioned inside."""
    return {last_name(item) for item in ast.walk(node)}


def texts(tree: ast.Module) -> Iterator[str]:
    """String constants that are not docstrings."""
    prose = {
        id(item.value) for item in ast.walk(tree) if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
    }
    for item in ast.walk(tree):
        if isinstance(item, ast.Constant) and isinstance(item.value, str) and id(item) not in prose:
            yield item.value
