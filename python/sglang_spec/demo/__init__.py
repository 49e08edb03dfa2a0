"""The demo: the same prompts with and without speculation, on real servers of this host."""
