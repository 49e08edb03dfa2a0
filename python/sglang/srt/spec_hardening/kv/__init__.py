"""What speculation costs in KV cache.

- `reserve`: how many slots a request needs before its next cycle (no torch).
- `reusable`: up to where the radix cache may keep a request that ends (no torch).
- `adaptive`: what each state of an adaptive server takes (no torch).
- `report`: tokens with and without speculation, and what the pools take, for `/server_info`.
"""
