"""The same answer with speculation as without it, for what depends on the tokens before.

A verify step judges a whole window of tokens at once, and upstream judges all of them with the
state of its first. Here each position has the state that plain decoding would have there:

- `window`: one verify step; what the patches call
- `tree`: which tokens lie on the way to each position
- `ledger`: which tokens a request has put out, on the device
- `fields`: what of a request depends on that
- `penalties`: penalties and `min_new_tokens` at each position
- `processors`: custom logit processors at each position
- `filters`: top-k, top-p and min-p as the plain sampler applies them
- `seeds`: seeded draws that do not depend on neighbours
- `ends`: where an accepted run ends a request, and its grammar
"""
