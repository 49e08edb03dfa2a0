"""Not a way to build: pip reads `pyproject.toml`. This file answers people who type `python setup.py`."""

import sys

sys.exit("setup.py builds nothing here. Type `pip install -e .` (or `pip install -e python`).")
