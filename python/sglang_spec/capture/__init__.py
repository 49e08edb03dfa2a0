"""`sglang-spec capture`: what the target hands to the draft, dumped, compared and made into data.

A *dump* is a folder of one safetensors file a sample with a manifest that says which layer each
slot is. Everything here but the dump itself runs on numpy, without torch or the engine.
"""
