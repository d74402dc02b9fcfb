"""Moves that are under way: a notifier runs each; and the log of moves, for people."""
