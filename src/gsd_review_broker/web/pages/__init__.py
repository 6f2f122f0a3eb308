"""One module for each page of the dashboard, or for a few small ones."""
