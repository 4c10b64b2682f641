"""Drives claimed turns: read, decide, act, record."""
