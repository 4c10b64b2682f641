"""A small Django project that uses turnkit_django: a help desk whose agent looks orders up and refunds them."""
