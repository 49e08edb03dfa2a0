"""Making an EAGLE3 draft: prompts, the target's own answers, training, export, evaluation.

`recipe` is the file all of it is read from and `run` the order of the stages; `prompts` and
`answers` make the data, `fit` trains `model` on it, `export` writes what SGLang loads and
`evaluate` says how long it is accepted. Plain PyTorch: no stage imports the engine, except for
answers that are asked of a real server. `replay`, `schedule`, `loops`, `sources`, `prompts` and
`recipe` need no torch.
"""
