"""The page of a turn shows which agent called which."""

import re

import pytest
from django.test import Client

from tests.admin.rows import conversation, turn
from tests.admin.test_turn_page import page, words
from tests.testapp.delegating_agents import BOSS, boss
from turnkit_django.models import Turn
from turnkit_django.testing import call, drain, text

pytestmark = pytest.mark.django_db


def rows(html: str) -> list[tuple[int, str]]:
    found = re.findall(r'<li class="turnkit-depth-(\d+)"[^>]*>(.*?)</li>', html)
    return [(int(depth), words(shown).strip()) for depth, shown in found]


@pytest.mark.django_db(transaction=True)
def test_a_parent_and_its_children_stand_on_the_page_of_each(viewer: Client, turnkit_model):
    def answer(request):
        if request.model == BOSS and request.messages[-1]["role"] == "user":
            return [call("writer", {"task": "write"}), call("reader", {"task": "read"})]
        return text("done")

    turnkit_model(answer)
    parent = boss.conversation().submit("do it")
    drain()
    first, _ = parent.children.order_by("created_at", "pk")
    for shown in (parent, first):
        found = rows(page(viewer, shown))
        assert [depth for depth, _ in found] == [0, 1, 1]
        assert [("this turn" in told) for _, told in found] == [shown == parent, shown == first, False]
        assert [told.split()[:2] for _, told in found] == [
            ["completed", "boss"],
            ["completed", "writer"],
            ["completed", "reader"],
        ]


def test_a_turn_that_called_nobody_has_no_tree(viewer: Client):
    assert "turnkit-tree" not in page(viewer, turn(conversation()))


def test_a_large_tree_is_cut_and_costs_one_query_more(viewer: Client, django_assert_max_num_queries):
    root = turn(conversation())
    Turn.objects.filter(pk=root.pk).update(root=root)
    for _ in range(150):
        turn(conversation(), root_id=root.pk, parent_id=root.pk, depth=1)
    with django_assert_max_num_queries(30):
        html = page(viewer, root)
    assert len(rows(html)) == 100
    assert "more turns than are shown" in html
