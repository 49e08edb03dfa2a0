"""`sglang-spec advise LOG`: would speculation pay for this traffic, on what was measured?

- `log`: a traffic log. `costs`: what a step costs, from a run of `bench` or a server.
- `simulate`: the log under a policy. `policy`: the policies compared, and which is best.
- `picture`, `command`: what is shown.
"""
