"""What a tool turn costs, beside a no-op job of RQ and the same turn in DBOS, measured in one run: `make bench`.

Every process is started and ended by its id, every file is in temporary folders, every connection stays on this
machine. `docs/benchmarks.md` says what is compared and how to read it.
"""
