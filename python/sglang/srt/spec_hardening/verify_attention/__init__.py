"""A chain's target verify as a decode of one row a draft token, on the triton attention backend.

`choice` says where that is possible and needs no torch; `rows` builds what the decode kernel reads.
Called by: patch `verify-as-decode`.
"""
