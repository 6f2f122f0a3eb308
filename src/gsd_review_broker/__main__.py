import sys

from gsd_review_broker.cli.main import serve_command

sys.exit(serve_command())
