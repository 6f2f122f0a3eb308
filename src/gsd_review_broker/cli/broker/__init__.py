"""The commands' side of a broker: start it, find its port, wait for it, and stand between it and a client on stdio."""
