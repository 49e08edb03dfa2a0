"""What the ranks of a server reduce with: facts of the machine, a plan, and what came of it.

`core` is the pure part: facts, settings and environment to a plan, without torch. `launch` applies
it in the parent, `vote` and `workspace` are called by the ranks, `applied` reports what they have.
"""
