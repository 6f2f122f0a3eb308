"""The product: its words, its model and its rules. Pure, with the standard library only."""
