"""A long load under faults: workers are killed, the queue is emptied, the database restarts, and all must add up."""
