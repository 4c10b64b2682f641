"""Only transitions write, only `store/locks.py` locks, only `store/sql.py` holds SQL that does either."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import Function, called, last_name, modules, names, outer_functions, texts
from turnkit_django.core.states import TURN_MOVES, TurnState
from turnkit_django.store import transitions  # noqa: F401  fills the table of transitions
from turnkit_django.store.moves import STATEMENTS, TRANSITIONS

MAKERS = {name for name, code in outer_functions(modules()["store/moves.py"]).items() if "TRANSITIONS" in names(code)}
"""The decorators that make a function a transition: those that put it into the table."""
ORM_WRITES = {
    "save", "delete", "create", "bulk_create", "bulk_update", "get_or_create", "update_or_create",
    "asave", "adelete", "acreate", "abulk_create", "abulk_update", "aget_or_create", "aupdate_or_create", "aupdate",
}  # fmt: skip
WRITING_SQL = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM|TRUNCATE|ALTER TABLE)\s+\"?turnkit_", re.IGNORECASE)
LOCKING_SQL = re.compile(r"\bFOR\s+(NO\s+KEY\s+UPDATE|UPDATE|KEY\s+SHARE|SHARE)\b|\bLOCK\s+TABLE\b", re.IGNORECASE)
MOVES = {
    name: code
    for path, tree in modules().items()
    if path.startswith("store/transitions/")
    for name, code in outer_functions(tree).items()
}
STORE = {path: tree for path, tree in modules().items() if path.startswith("store/")}
IN_MEMORY_COPIES = {"engine/run.py"}
"""Where a worker's own copy of a row follows what a transition has just recorded. Nothing there can save it."""


def is_write(name: str, call: ast.Call) -> bool:
    """An ORM write, or SQL that is not visibly a plain SELECT."""
    if name == "update":  # of a queryset: keywords only; a dict's takes a mapping
        return isinstance(call.func, ast.Attribute) and not call.args and not ast.unparse(call).startswith("vars(")
    if name in {"execute", "executemany"} and isinstance(call.func, ast.Attribute):
        text = call.args[0]
        return not (isinstance(text, ast.Constant) and str(text.value).startswith("SELECT "))
    return name in ORM_WRITES and isinstance(call.func, ast.Attribute)


def is_move(function: Function) -> bool:
    makers = [item.func if isinstance(item, ast.Call) else item for item in function.decorator_list]
    return any(last_name(maker) in MAKERS for maker in makers)


def strays(store: dict[str, ast.Module]) -> list[str]:
    """Functions that write and are neither transitions nor used by nothing but transitions."""
    functions = {(path, name): code for path, tree in store.items() for name, code in outer_functions(tree).items()}
    trusted = {key for key, code in functions.items() if is_move(code) or key[1] in MAKERS}
    writers = {
        key for key, code in functions.items() if key not in trusted and any(is_write(*item) for item in called(code))
    }
    return sorted(f"{path}:{name}" for path, name in writers if not _is_private((path, name), functions, trusted))


def _is_private(
    key: tuple[str, str], functions: dict[tuple[str, str], Function], trusted: set[tuple[str, str]]
) -> bool:
    """Whether every way to this function begins in a trusted one: followed up through all that mention it."""
    seen, left = set(), [key]
    while left:
        path, name = left.pop()
        if (path, name) in trusted or (path, name) in seen:
            continue
        seen.add((path, name))
        users = [other for other, code in functions.items() if other != (path, name) and name in names(code)]
        if not users or _is_mentioned_outside(path, name):
            return False
        left += users
    return True


def _is_mentioned_outside(path: str, name: str) -> bool:
    """A private name belongs to its module; a public one may be used from anywhere in the package."""
    if name.startswith("_"):
        return False
    return any(
        isinstance(item, ast.Attribute | ast.Name) and last_name(item) == name
        for other, tree in modules().items()
        if not other.startswith("store/")
        for item in ast.walk(tree)
    )


def test_every_function_of_the_store_that_writes_is_a_transition_or_a_part_of_some():
    assert strays(STORE) == []


def test_these_decorators_make_transitions():
    assert {"transition", "maintenance", "worker_move", "claiming", "statement"} == MAKERS


def test_the_transitions_are_those_that_are_declared_and_live_in_one_place():
    declared = [
        (path, name)
        for path, tree in modules().items()
        for name, code in outer_functions(tree).items()
        if is_move(code)
    ]

    assert sorted(TRANSITIONS) == sorted(name for _, name in declared)
    assert all(path.startswith("store/transitions/") for path, _ in declared)
    assert set(STATEMENTS) < set(TRANSITIONS)


@pytest.mark.parametrize(
    "planted",
    [
        "def sweep():\n    Turn.objects.filter(pk=1).update(status='failed')",
        "def add(turn):\n    turn.save()",
        "def clean():\n    _drop()\ndef _drop():\n    Turn.objects.all().delete()",
        "def run(cursor):\n    cursor.execute(sql.STORE_REPLY, {})",
        "class Rows:\n    def put(self):\n        Message.objects.bulk_create([])",
        "def _orphan():\n    Turn.objects.create()",
        "def peek(cursor):\n    cursor.execute('WITH x AS (SELECT 1) UPDATE turnkit_turn SET phase = 1')",
    ],
)
def test_a_planted_write_is_caught(planted: str):
    assert strays({**STORE, "store/planted.py": ast.parse(planted)})


@pytest.mark.parametrize(
    "planted",
    [
        "@transition\ndef sweep(locks):\n    _drop()\ndef _drop():\n    Turn.objects.all().delete()",
        "def look(cursor):\n    cursor.execute('SELECT 1')",
        "def merge(found):\n    found.update({'a': 1})",
    ],
)
def test_a_planted_transition_or_read_is_not(planted: str):
    assert strays({**STORE, "store/planted.py": ast.parse(planted)}) == []


def elsewhere() -> Iterator[tuple[str, ast.Module]]:
    for path, tree in modules().items():
        if not path.startswith(("store/", "testing/")):
            yield path, tree


def test_no_other_module_writes_rows():
    found = [
        f"{path}:{call.lineno} {name}"
        for path, tree in elsewhere()
        for name, call in called(tree)
        if is_write(name, call)
    ]

    assert found == []


def test_a_status_is_assigned_by_transitions_and_in_a_workers_own_copies_only():
    found = {
        path
        for path, tree in modules().items()
        for item in ast.walk(tree)
        if isinstance(item, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (item.targets if isinstance(item, ast.Assign) else [item.target])
        for part in ast.walk(target)
        if isinstance(part, ast.Attribute) and part.attr == "status" and isinstance(part.ctx, ast.Store)
    }
    assigning = [name for name, code in MOVES.items() if _assigns(code)]

    assert found <= {"store/transitions/writes.py", *IN_MEMORY_COPIES}
    assert assigning == ["move_turn"]


def _assigns(code: Function) -> bool:
    return any(
        isinstance(part, ast.Attribute) and part.attr == "status" and isinstance(part.ctx, ast.Store)
        for part in ast.walk(code)
    )


def test_sql_that_writes_or_locks_is_in_one_file():
    found = {path for path, tree in modules().items() for text in texts(tree) if WRITING_SQL.search(text)}
    locking = {path for path, tree in modules().items() for text in texts(tree) if LOCKING_SQL.search(text)}

    assert {"store/sql.py"} == found
    assert {"store/sql.py"} == locking


@pytest.mark.parametrize("word", ["select_for_update", "pg_advisory", "no_key", "skip_locked"])
def test_locks_are_taken_in_one_file(word: str):
    found = {
        path
        for path, tree in modules().items()
        if any(word in text for text in texts(tree))
        or word in names(tree)
        or any(item.arg == word for item in ast.walk(tree) if isinstance(item, ast.keyword))
    }

    assert {"store/locks.py"} == found


def test_row_locks_are_never_full_ones():
    calls = [call for name, call in called(modules()["store/locks.py"]) if name == "select_for_update"]
    options = [{item.arg: ast.unparse(item.value) for item in call.keywords} for call in calls]

    assert len(options) >= 3
    # A scan that finds lanes by their turns locks the lanes only.
    assert all(option["no_key"] == "True" for option in options)
    assert {option["of"] for option in options} == {"('self',)", "('conversation',)"}


FIRST_LINE = re.compile(
    r"(?P<old>\(new\)|any|[A-Z]+(?:, [A-Z]+)*)(?: → (?P<new>the same|[A-Z]+(?:, [A-Z]+)*))?\. [A-Z].+"
)


def declared_moves() -> list[tuple[str, Function]]:
    return [(name, code) for name, code in MOVES.items() if is_move(code)]


@pytest.mark.parametrize(("name", "code"), declared_moves(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_first_line_of_a_transition_says_from_where_to_where(name: str, code: Function):
    first = (ast.get_docstring(code) or "").partition("\n")[0]
    said = FIRST_LINE.fullmatch(first)
    assert said, f"{name}: expected `FROM → TO. What else happens.`, got {first!r}"

    old = [TurnState.PENDING] if said["old"] == "(new)" else _states(said["old"])
    new = _states(said["new"])
    illegal = [(a, b) for a in old for b in new if b not in TURN_MOVES[a] and a != b]
    assert illegal == []
    assert _targets(code) - set(new) <= set(old) | {None}
    assert set(new) - set(old) <= _targets(code)


def _states(words: str | None) -> list[TurnState]:
    return [TurnState[word] for word in (words or "").split(", ") if word.isupper()]


OF_OTHER_TURNS = {"after_end", "_submit_child"}
"""What a move does to other turns than the one its first line is about."""


def _targets(code: Function) -> set[TurnState | None]:
    """The states that a transition, with the functions it is made of, moves turns to. None is "as it was"."""
    found: set[TurnState | None] = set()
    seen, left = set(), [code]
    while left:
        for name, call in called(left.pop()):
            if name in {"move_turn", "end_turn", "let_go"}:
                found |= {_state(call)} | ({TurnState.PAUSED} if name == "let_go" else set())
            elif isinstance(call.func, ast.Name) and name in MOVES and name not in seen | OF_OTHER_TURNS:
                seen.add(name)
                left.append(MOVES[name])
    return found


def _state(call: ast.Call) -> TurnState | None:
    for argument in call.args:
        if isinstance(argument, ast.Attribute) and last_name(argument.value) == "TurnState":
            return TurnState[argument.attr]
    return None


@pytest.mark.parametrize(("name", "code"), declared_moves(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_workers_move_takes_a_claim_and_nobody_elses_does(name: str, code: Function):
    makers = {last_name(item.func if isinstance(item, ast.Call) else item) for item in code.decorator_list}
    arguments = [*code.args.args, *code.args.kwonlyargs]
    kinds = [ast.unparse(item.annotation) for item in arguments if item.annotation]

    if makers == {"statement"}:  # its maker puts the claim in front
        assert "Claim" not in kinds
    elif makers == {"worker_move"}:
        assert kinds[:2] == ["Locks", "Claim"]
    elif name == "renew":  # for all claims of a process at once
        assert kinds == ["Locks", "Sequence[Claim]", "int"]
    else:
        assert kinds[0] == "Locks"
        assert [kind for kind in kinds if "Claim" in kind] == []
