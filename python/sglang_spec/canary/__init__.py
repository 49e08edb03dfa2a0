"""`sglang-spec canary A B`: may B take the place of A?

- `spec`: what A and B can be: flags, another environment, a server that runs.
- `verdict`: the checks and the one verdict.
- `command`: the command; servers are measured by `bench.runner`.
"""
