"""Recipes: a launch written down as TOML, checked on any machine, and turned into its command.

`read` gives the typed record or names what is wrong with the file, `rules` what is wrong between
its keys, `machine` what does not fit the GPUs, `pair` what does not fit the draft; `arguments`
makes the command. No module here imports torch or the engine.
"""
