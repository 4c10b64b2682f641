"""The only writer of the six models: locks, transitions, and what follows a commit."""
