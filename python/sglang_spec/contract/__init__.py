"""`sglang-spec contract`: whether a draft fits a target, from configs and weight headers alone."""
