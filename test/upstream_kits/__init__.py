"""Upstream's own test kits, as they ship in the wheel, against servers of ours and of upstream.

`make test-upstream`; docs/upstream-kits.md is the table, test/results/upstream_kits.json its data.
"""
