"""What elastic is measured by: `python -m benchmarks`."""
