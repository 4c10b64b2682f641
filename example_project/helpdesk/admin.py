from django.contrib import admin

from example_project.helpdesk.models import Customer, Order, Refund, Ticket

admin.site.register([Customer, Order, Refund, Ticket])
