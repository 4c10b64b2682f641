from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path
from django.views.generic import RedirectView

from example_project.helpdesk import views

app_name = "helpdesk"
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="helpdesk:tickets")),
    path("login/", LoginView.as_view(template_name="helpdesk/login.html"), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("tickets/", views.tickets, name="tickets"),
    path("tickets/new/", views.new_ticket, name="new"),
    path("tickets/<int:pk>/", views.ticket, name="ticket"),
    path("tickets/<int:pk>/news/<int:after>/", views.news, name="news"),
    path("tickets/<int:pk>/cancel/", views.cancel, name="cancel"),
]
