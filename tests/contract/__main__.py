"""`make docs`: write the generated pages and snapshots anew; look at the difference before you commit it."""

from tests.contract.page import PAGE, SNAPSHOT, page, snapshot_text

SNAPSHOT.write_text(snapshot_text())
PAGE.write_text(page())
