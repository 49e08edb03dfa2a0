"""`sglang-spec doctor`: what runs here and whether it is what was made."""
