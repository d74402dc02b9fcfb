"""What follows from the facts. Nothing here waits, or touches anything."""
