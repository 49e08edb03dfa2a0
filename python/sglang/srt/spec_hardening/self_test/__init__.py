"""The start-up self-test: a rank is called ready after it has decoded, in the modes it will serve.

It runs in the scheduler's process between construction and the ready message, on every rank in
step, through the scheduler's own event loop: real requests, real draft, verify and draft-extend
cycles, graphs and overlap included. What came out is held against a teacher-forced prefill of the
same tokens. See `run.prove_decoding`.
"""
