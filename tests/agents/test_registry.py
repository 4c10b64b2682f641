import contextlib
import threading
from typing import Any

import pytest

from turnkit_django import Agent, get_agent, register
from turnkit_django.agents import registered, registry
from turnkit_django.errors import ConfigError


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", {})


def build_in(module: str, **options: Any) -> Agent:
    """An agent as a module of that name would build it."""
    scope: dict[str, Any] = {"__name__": module, "Agent": Agent, "options": options}
    exec("agent = Agent(**options)", scope)
    agent = scope["agent"]
    assert isinstance(agent, Agent)
    return agent


def test_a_registered_agent_is_returned_and_found_by_name():
    agent = register(Agent(name="support"))

    assert get_agent("support") is agent
    assert registered() == {"support": agent}


def test_another_definition_under_the_same_name_is_refused_naming_both_modules():
    first = register(build_in("shop.agents", name="support"))

    with pytest.raises(ConfigError, match=r"agent `support`, got two: in `shop\.agents` and in `forum\.agents`"):
        register(build_in("forum.agents", name="support", instructions="Other."))
    assert get_agent("support") is first


def test_a_reloaded_module_may_change_its_definition():
    register(build_in("shop.agents", name="support"))

    newer = register(build_in("shop.agents", name="support", instructions="Newer."))

    assert get_agent("support") is newer


def test_an_equal_definition_may_come_from_another_module():
    register(build_in("shop.agents", name="support"))

    assert register(build_in("shop.copies", name="support")).module == "shop.copies"


def test_only_agents_are_registered():
    with pytest.raises(ConfigError, match=r"expected an Agent, got 'support' \(str\)"):
        register("support")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("suport", "did you mean `support`?"),
        ("zzz", "registered: `billing`, `support`"),
        ("", "registered: `billing`, `support`"),
    ],
)
def test_an_unknown_name_lists_near_misses_and_says_where_agents_belong(name: str, hint: str):
    register(Agent(name="support"))
    register(Agent(name="billing"))

    with pytest.raises(ConfigError) as caught:
        get_agent(name)

    assert hint in str(caught.value)
    assert "Put `register(Agent(...))` into the `agents.py` of an installed app" in str(caught.value)


def test_an_empty_registry_says_so():
    with pytest.raises(ConfigError, match="registered: none"):
        get_agent("support")


def test_the_listing_is_a_copy_that_cannot_be_changed():
    before = registered()
    register(Agent(name="support"))

    assert before == {}
    with pytest.raises(TypeError):
        before["x"] = Agent(name="x")  # type: ignore[index]


def test_of_many_threads_with_different_definitions_one_wins():
    agents = [build_in(f"app{number}.agents", name="support", version=str(number)) for number in range(8)]
    start, won = threading.Barrier(8), []

    def try_it(agent: Agent) -> None:
        start.wait()
        with contextlib.suppress(ConfigError):
            won.append(register(agent))

    threads = [threading.Thread(target=try_it, args=[agent]) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert won == [get_agent("support")]
