"""`python -m sglang_spec …` is `sglang-spec …`."""

from sglang_spec.cli import main

main()
