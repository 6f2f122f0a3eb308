"""`make docs`: write the generated pages and snapshots again; look at the difference before you commit it."""

from tests.contract.commands import COMMANDS_PAGE, COMMANDS_SNAPSHOT, commands_page, commands_text
from tests.contract.first_answers import FIRST_ANSWERS, first_answers_text
from tests.contract.page import PAGE, SNAPSHOT, page, snapshot_text
from tests.contract.schemas import newest_script, newest_text
from tests.contract.settings import CONFIGURATION, configuration_page

SNAPSHOT.write_text(snapshot_text())
PAGE.write_text(page())
COMMANDS_SNAPSHOT.write_text(commands_text())
COMMANDS_PAGE.write_text(commands_page())
CONFIGURATION.write_text(configuration_page())
FIRST_ANSWERS.write_text(first_answers_text())
newest_script().write_text(newest_text())
