"""What `tandem gsd` does."""
