"""The five phases of Elastic Storm (2016), section VI, with elasticity and without: `python -m examples.demo.fivephase`."""
