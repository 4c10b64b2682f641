"""The systems that are compared, as the measuring process sees them: submit work, and see that it is done."""
