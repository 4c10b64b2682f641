from django.contrib import admin
from django.urls import include, path

# The help desk's own page for what is not found links to its other pages.
urlpatterns = [path("admin/", admin.site.urls), path("", include("example_project.helpdesk.urls"))]
