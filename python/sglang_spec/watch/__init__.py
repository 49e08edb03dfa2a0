"""What a running server shows of its speculation: live in a terminal, and as one page."""
