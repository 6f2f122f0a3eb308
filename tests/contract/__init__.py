"""The contract as files: what clients see, written down, and held to it by a test."""
