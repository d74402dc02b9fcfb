"""What Nimbus sees: coordination as its watches show it, and what workers report. The input of every decision."""
