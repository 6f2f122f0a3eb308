"""What the services need from the outside world. Technologies implement these protocols; services see nothing else."""
