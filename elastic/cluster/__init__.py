"""Where the real adapters are chosen and wired: the launcher, and the mains of the processes it starts."""
