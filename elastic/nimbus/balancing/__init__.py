"""Who resizes and places topologies, and asks for nodes, by load: measurements in, moves out."""
