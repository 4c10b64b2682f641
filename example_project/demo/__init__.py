"""The demo: an agent loses its worker to SIGKILL in the middle of its work, and finishes anyway. Then the help desk is
open in the browser until Ctrl-C.

python -m example_project.demo [--once] [--ticket TEXT] [--port NUMBER]
"""
