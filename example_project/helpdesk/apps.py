from django.apps import AppConfig


class HelpdeskConfig(AppConfig):
    name = "example_project.helpdesk"
    verbose_name = "Help desk"
    default_auto_field = "django.db.models.BigAutoField"
