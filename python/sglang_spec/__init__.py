"""Tools that build, check and measure the hardened SGLang tree; imports no torch."""
