"""Tasks that come and go with their states: how one worker takes part in moves."""
