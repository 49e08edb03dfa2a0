"""`sglang-spec doctor comm` and `comm-bench`: what reduces between GPUs, and how fast."""
