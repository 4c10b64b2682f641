"""The worker processes of the systems."""
