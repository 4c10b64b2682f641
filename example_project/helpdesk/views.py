"""The pages of the help desk. They submit work and read rows: no page ever waits for a model."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRefresh

from example_project.helpdesk import thread
from example_project.helpdesk.forms import MessageForm
from example_project.helpdesk.models import Customer, Ticket
from example_project.helpdesk.tickets import cancel_work, current_turn, open_ticket
from turnkit_django.errors import StateError
from turnkit_django.models import Turn

_TICKETS_A_PAGE = 20
_SENT_BEFORE = "This form was sent before, with another text. Send it again to add what it says now."
_TOO_LATE = {
    "answered": "Nothing was cancelled: the help desk had answered already.",
    "failed": "Nothing was cancelled: the work had failed already.",
    "cancelled": "Nothing was cancelled: it was cancelled already.",
}


@require_safe
@login_required
@never_cache
def tickets(request: HttpRequest) -> HttpResponse:
    """A customer's tickets, or everybody's for the staff; the newest first."""
    rows = Ticket.objects.visible_to(request.user).with_status().select_related("customer")
    page = Paginator(rows, _TICKETS_A_PAGE).get_page(request.GET.get("page"))
    for ticket in page:
        ticket.word = thread.WORDS.get(ticket.status, "closed")
    return render(request, "helpdesk/tickets.html", {"page": page, "customer": _customer(request)})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def new_ticket(request: HttpRequest) -> HttpResponse:
    customer = _customer(request)
    if customer is None:
        messages.error(request, "Only customers open tickets, and this login belongs to none.")
        return redirect("helpdesk:tickets")
    form = _form(request)
    if form.is_valid():
        try:
            ticket, _ = open_ticket(customer, form.cleaned_data["text"], key=form.cleaned_data["key"])
        except StateError:
            form.add_error(None, _SENT_BEFORE)
        else:
            return redirect(ticket)
    return render(request, "helpdesk/new_ticket.html", {"form": form, "key": uuid4(), "customer": customer})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def ticket(request: HttpRequest, pk: int) -> HttpResponse:
    """The thread, and a form for one more message."""
    found = _ticket(request, pk)
    shown = _thread(request, found)
    if request.method == "POST" and not shown["is_own"]:
        raise PermissionDenied("the staff reads and cancels; only the customer writes")
    form = _form(request)
    if form.is_valid():
        try:
            found.conversation.submit(form.cleaned_data["text"], key=str(form.cleaned_data["key"]))
        except StateError:
            form.add_error(None, _SENT_BEFORE)
        else:
            return redirect(f"{found.get_absolute_url()}#state")
    return render(request, "helpdesk/ticket.html", {**shown, "form": form, "key": uuid4()})


@require_safe
@never_cache
def news(request: HttpRequest, pk: int, after: int) -> HttpResponse:
    """What the page of a ticket does not show yet, for HTMX; 204 if that is nothing.

    Args:
        after: The number of the last message that it has.

    The query's `seen` is the stamp that it shows.
    """
    found = Ticket.objects.visible_to(request.user).select_related("customer").filter(pk=pk).first()
    if found is None:
        if request.htmx:
            return HttpResponseClientRefresh()  # the page itself then says what is the matter, such as a log-out
        raise Http404
    shown = _thread(request, found, after=after)
    if shown["thread"].last == after and shown["thread"].stamp == request.GET.get("seen"):
        return HttpResponse(status=204)
    return render(request, "helpdesk/news.html", shown)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Asks first, on a page of its own."""
    found = _ticket(request, pk)
    if found.customer.user_id != request.user.pk and not request.user.has_perm("turnkit.cancel_turn"):
        raise PermissionDenied("cancelling other people's work needs the permission turnkit.cancel_turn")
    turn = current_turn(found)
    if request.method == "POST" and cancel_work(found):
        messages.success(request, "The work on your message was cancelled.")
    elif request.method == "POST" or turn is None or turn.is_terminal:
        turn = current_turn(found)
        word = thread.WORDS[Turn.Status(turn.status)] if turn else ""
        messages.warning(request, _TOO_LATE.get(word, "Nothing was cancelled."))
    else:
        return render(request, "helpdesk/cancel.html", {"ticket": found})
    return redirect(found)


def _customer(request: HttpRequest) -> Customer | None:
    return Customer.objects.filter(user=request.user.pk).first()


def _ticket(request: HttpRequest, pk: int) -> Ticket:
    rows = Ticket.objects.visible_to(request.user).select_related("customer", "conversation")
    found: Ticket = get_object_or_404(rows, pk=pk)
    return found


def _form(request: HttpRequest) -> MessageForm:
    return MessageForm(request.POST if request.method == "POST" else None)


def _thread(request: HttpRequest, ticket: Ticket, *, after: int = 0) -> dict[str, Any]:
    is_own = ticket.customer.user_id == request.user.pk
    return {"ticket": ticket, "is_own": is_own, "thread": thread.read(ticket, current_turn(ticket), after=after)}
