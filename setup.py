"""Builds nothing: pip reads `pyproject.toml`. This answers people who type `python setup.py`."""

import sys

sys.exit("setup.py builds nothing here. Type `pip install -e .` (or `pip install -e python`).")
