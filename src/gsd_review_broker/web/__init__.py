"""HTTP: what every request passes first, the dashboard, its event stream, and JSON routes."""
