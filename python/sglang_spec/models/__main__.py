"""`python -m sglang_spec.models`, the same as `sglang-spec models`."""

import sys

from sglang_spec.models.cli import main

sys.exit(main())
