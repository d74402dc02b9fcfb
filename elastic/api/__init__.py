"""What users subclass, and the builder. Users import from `elastic`."""
