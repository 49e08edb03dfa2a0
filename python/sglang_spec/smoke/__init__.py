"""`sglang-spec smoke`: does this server really decode with speculation, and rightly?"""
