"""From a task to the tasks after it: generated emits, buffers for each target, the ends of links, and when they are handed on."""
