"""The nouns of the system: immutable values, no behaviour beyond looking things up in themselves."""
