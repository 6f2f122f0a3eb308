"""The gate's client side: the git hook, its installation, and what answers when no broker does."""
