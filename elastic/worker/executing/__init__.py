"""Tasks and the threads that run them: queues, slices, who holds which task, and what happens when user code raises."""
