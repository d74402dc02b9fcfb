"""The migration protocol under every fault: the product's own roles over a simulated network, stores, coordination and clock.

python -m protocol_tests --seconds 30 --seed 1      many random runs; prints moves, faults by kind, states reached
python -m protocol_tests --replay 4711              one run again, told step by step
python -m protocol_tests --replay FILE              the same from a file that a failing test has written
"""
