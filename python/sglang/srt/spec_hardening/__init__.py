"""The project's engine modules. Patches under `patches/` call them; nothing here runs by itself.

A module that needs no torch (policy, arithmetic, contracts) imports without it.
"""
