"""Each result that clients see, with the function that makes it."""
