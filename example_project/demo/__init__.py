"""The demo: an agent loses its worker to SIGKILL in the middle of its work, and finishes anyway.

python -m example_project.demo [--once] [--ticket TEXT]
"""
