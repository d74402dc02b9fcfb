"""The state store: one service per node, holding what tasks hand over. Knows nothing of elastic."""
