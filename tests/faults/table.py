"""Faults that a test must catch: what is changed in which file, and which tests fail then.

Each stands for a promise that code keeps by its order, its timing or a single word. `make faults` puts them in, one at
a time (see __main__.py); tests/unit/test_faults.py checks that each still fits the code.
"""

from tests.faults.fault import Fault
from tests.faults.fault import fault as _fault
from tests.faults.security import SECURITY

_LONG_POLL = "tests/integration/service/test_long_poll.py"
_LONG_POLL_UNIT = "tests/unit/service/test_long_poll.py"
_STORE = "tests/integration/store/test_store.py"
_STORAGE = "tests/integration/store/test_storage_faults.py"
_STREAM = "tests/integration/web/test_events.py"
_FEED = "tests/integration/service/test_feed.py"
_RULES = "tests/unit/domain/rules/test_rules.py"
_SCREEN = "tests/unit/cli/test_screen.py"
_MAIN = "tests/unit/cli/test_main.py"
_MARKDOWN = "tests/unit/web/markdown/test_rendering.py"
_RENDERING = "tests/unit/web/diff/test_rendering.py"
_JSON = "tests/unit/integrations/formats/test_json_format.py"
_TOML = "tests/unit/integrations/formats/test_toml_format.py"
_BRIDGE = "tests/integration/cli/test_bridge.py"
_POLICY = "tests/unit/pool/test_policy.py"
_CHILD = "tests/integration/pool/test_child.py"
_HINTS = "tests/unit/service/wire/test_hints.py"
_INTERDIFF = "tests/unit/domain/patch/test_interdiff.py"
_STATISTICS = "tests/integration/service/test_statistics.py"
_MOVING = "tests/integration/store/test_moving.py"
_SEVERAL_BROKERS = "tests/integration/store/test_several_brokers.py"

WAITING = (
    _fault(
        "only a new review wakes the queue",
        "store/writes.py",
        "        if review.status is Status.PENDING:\n",
        "        if review.status is Status.PENDING and before is None:\n",
        f"{_LONG_POLL}::test_a_review_that_is_pending_again_wakes_those_who_wait_for_work",
    ),
    _fault(
        "a change does not wake those who wait for its review",
        "store/writes.py",
        "        self.topics.append(review_topic(review.id))\n",
        "",
        f"{_LONG_POLL}::test_a_waiting_proposer_is_woken_by_the_verdict",
    ),
    _fault(
        "an event does not wake the event stream",
        "store/writes.py",
        "        self.topics.append(EVENTS)\n",
        "",
        f"{_STREAM}::test_what_happens_later_reaches_a_viewer",
    ),
    _fault(
        "a wait looks before it registers",
        "service/waiting.py",
        "        with self._wakeups.listening(topic) as signal:\n            while True:\n",
        "        if (early := await look()) is not None:\n            return early\n"
        "        with self._wakeups.listening(topic) as signal:\n            await signal.wait()\n"
        "            while True:\n",
        f"{_LONG_POLL_UNIT}::test_what_is_published_during_the_first_look_is_not_missed",
    ),
    _fault(
        "a wait forgets what was published while it looked",
        "service/waiting.py",
        "                signal.clear()\n                answer = await look()\n",
        "                answer = await look()\n                signal.clear()\n",
        f"{_LONG_POLL_UNIT}::test_what_is_published_during_a_later_look_is_not_missed",
    ),
    _fault(
        "a wait goes on though the broker closes",
        "service/waiting.py",
        "if answer is not None or self._wakeups.closing:",
        "if answer is not None:",
        f"{_LONG_POLL}::test_of_many_who_wait_for_work_one_gets_it_and_the_rest_wait_on",
    ),
    _fault(
        "the end of the broker wakes nobody",
        "ports/world.py",
        "        self.closing = True\n        self.publish_all()\n",
        "        self.closing = True\n",
        f"{_LONG_POLL}::test_of_many_who_wait_for_work_one_gets_it_and_the_rest_wait_on",
    ),
    _fault(
        "the notifier counts as a client that waits",
        "notify.py",
        "self._wakeups.listening(EVENTS, counted=False)",
        "self._wakeups.listening(EVENTS)",
        "tests/acceptance/broker/test_notify.py::test_the_notifier_is_not_counted_among_those_who_wait",
    ),
    _fault(
        "the event stream counts as a client that waits",
        "web/events.py",
        "self._wakeups.listening(EVENTS, counted=False)",
        "self._wakeups.listening(EVENTS)",
        f"{_STREAM}::test_where_nobody_watches_nothing_runs",
    ),
    _fault(
        "a viewer registers after it has caught up",
        "web/events.py",
        "        with self._watching(review_id) as viewer:\n"
        "            first = await self._begin(request, review_id)\n",
        "        first = await self._begin(request, review_id)\n        with self._watching(review_id) as viewer:\n",
        f"{_STREAM}::test_what_happens_while_a_viewer_catches_up_reaches_it",
    ),
)

STORAGE = (
    Fault(
        name="a reader has no snapshot",
        file="store/sqlite_store.py",
        edits=(
            ('            connection.execute("BEGIN")\n', ""),
            ('                connection.execute("COMMIT")\n', "                pass\n"),
        ),
        tests=(f"{_STORE}::test_a_read_sees_one_moment_however_long_it_takes",),
    ),
    _fault(
        "the lock file is removed at its release",
        "store/lock.py",
        "            os.close(self._descriptor)\n",
        "            self._path.unlink()\n            os.close(self._descriptor)\n",
        f"{_STORE}::test_whoever_opened_the_lock_before_its_release_cannot_lock_beside_the_next_owner",
    ),
    _fault(
        "the runtime file is removed when the lock is free",
        "server.py",
        "self._announce.remove()\n        await self._let_answers_out()\n        await super().shutdown(sockets)\n",
        "await self._let_answers_out()\n        await super().shutdown(sockets)\n        self._announce.remove()\n",
        "tests/acceptance/broker/test_shutdown.py::test_the_runtime_file_is_removed_while_the_lock_is_still_held",
    ),
    Fault(
        name="a list's cursor is not bound to the reviewer",
        file="service/queries/reviews.py",
        edits=(
            ("_list_position_in(read_cursor(cursor, query))", "_list_position_in(read_cursor(cursor, wanted))"),
            ("make_cursor(query, list_position(", "make_cursor(wanted, list_position("),
        ),
        tests=(f"{_FEED}::test_a_lists_cursor_belongs_to_every_argument",),
    ),
    _fault(
        "a cursor is bound to nothing",
        "service/wire/encoding.py",
        "    if bound != _bound(query):\n",
        "    if not bound:\n",
        f"{_FEED}::test_a_lists_cursor_belongs_to_every_argument",
        f"{_FEED}::test_a_cursor_belongs_to_its_filters",
    ),
    _fault(
        "a text of exactly the limit is refused",
        "service/validation.py",
        "    if size > limit:\n",
        "    if size >= limit:\n",
        "tests/unit/service/test_validation.py::test_a_limit_is_in_bytes_and_itself_allowed",
    ),
    _fault(
        "limits count characters",
        "service/validation.py",
        "    size = len(encoded(name, value))\n",
        "    size = len(value)\n",
        "tests/unit/service/test_validation.py::test_a_limit_is_in_bytes_and_itself_allowed",
    ),
)

CLAIMS = (
    _fault(
        "a claim does not move the generation",
        "domain/rules/claims.py",
        "        claim_generation=review.claim_generation + 1,\n",
        "        claim_generation=review.claim_generation,\n",
        f"{_RULES}::test_the_generation_grows_when_a_claim_begins_and_when_it_ends_without_a_verdict",
    ),
    _fault(
        "a claim that ends does not move the generation",
        "domain/rules/transitions.py",
        "review.claim_generation + (review.claimed_by is not None)",
        "review.claim_generation",
        f"{_RULES}::test_the_generation_grows_when_a_claim_begins_and_when_it_ends_without_a_verdict",
    ),
    _fault(
        "a generation that has not begun passes the fence",
        "domain/rules/claims.py",
        "    if claim_generation != review.claim_generation:\n",
        "    if claim_generation < review.claim_generation:\n",
        f"{_RULES}::test_a_generation_that_has_not_begun_is_refused_too",
    ),
    _fault(
        "the author of a revision may judge it",
        "domain/rules/claims.py",
        "if same_identity(reviewer, review.proposer) or same_identity(reviewer, review.author):",
        "if same_identity(reviewer, review.proposer):",
        f"{_RULES}::test_whoever_uploaded_the_newest_revision_may_not_judge_it_either",
    ),
    _fault(
        "a reservation holds a millisecond too long",
        "domain/rules/claims.py",
        "review.reserved_until <= now:",
        "review.reserved_until < now:",
        f"{_RULES}::test_a_revision_is_kept_for_the_reviewer_who_is_still_there",
    ),
    _fault(
        "any caller extends a claim",
        "domain/rules/claims.py",
        "    if not review.is_claim_live or not same_identity(review.claimed_by, caller):\n        return None\n",
        "    if not review.is_claim_live:\n        return None\n",
        f"{_RULES}::test_only_the_live_claimant_extends_its_deadline",
    ),
    _fault(
        "the interdiff of a file shows every file",
        "domain/patch/interdiff.py",
        "    if path is not None:\n        keys",
        "    if path == '':\n        keys",
        f"{_INTERDIFF}::test_one_file_is_found_by_its_old_and_its_new_name",
        "tests/integration/service/test_odd_moments.py::"
        "test_the_interdiff_of_one_file_is_not_found_inside_another_file",
    ),
)

SHOWN = (
    _fault(
        "the text of a rendered plan is markup",
        "web/diff/rendered_markdown.py",
        "    shown = visible(text)\n",
        "    shown = text\n",
        f"{_MARKDOWN}::test_what_markdown_hides_is_shown",
        f"{_MARKDOWN}::test_every_character_of_the_file_is_shown_in_its_order_and_nothing_else_is",
    ),
    _fault(
        "a rendered plan leaves HTML out",
        "web/diff/markdown.py",
        '            yield Run(start, stop, "raw")\n',
        "            yield from ()\n",
        f"{_MARKDOWN}::test_html_inside_a_paragraph_is_marked",
    ),
    _fault(
        "marks that do not add up are believed",
        "web/diff/markdown.py",
        "    return parts if _is_whole(parts, len(text)) else whole\n",
        "    return parts\n",
        f"{_MARKDOWN}::test_what_markdown_hides_is_shown",
    ),
    _fault(
        "lines that the parser leaves out are left out",
        "web/diff/markdown.py",
        "        blocks += _between(lines, at, block.start)\n",
        "",
        f"{_MARKDOWN}::test_what_markdown_hides_is_shown",
    ),
    _fault(
        "a line of invisible characters is a blank line",
        "web/diff/rendered_markdown.py",
        'not row.text.strip(" \\t"):\n',
        "not row.text.strip():\n",
        f"{_MARKDOWN}::test_what_markdown_hides_is_shown",
    ),
    _fault(
        "Markdown of nothing but marks is parsed",
        "web/diff/markdown.py",
        "        if marks > self._most_marks or marks * marks > self._left:\n",
        "        if False:\n",
        f"{_MARKDOWN}::test_a_paragraph_of_marks_and_a_page_of_them_are_not_parsed",
    ),
    _fault(
        "a link in a plan leads where it does not say",
        "web/diff/markdown.py",
        " and href in text else",
        " else",
        f"{_MARKDOWN}::test_a_link_leads_where_it_says_or_nowhere",
    ),
    _fault(
        "a hunk's heading is markup",
        "web/diff/rendering.py",
        "{visible(hunk.heading)}",
        "{hunk.heading}",
        f"{_RENDERING}::test_headings_and_paths_are_text_too",
    ),
    _fault(
        "a file's path is markup",
        "web/diff/rendering.py",
        "{visible(file.path)}</caption>",
        "{file.path}</caption>",
        f"{_RENDERING}::test_headings_and_paths_are_text_too",
    ),
    _fault(
        "an error is printed raw",
        "cli/main.py",
        "print(visible_block(text), file=sys.stderr)",
        "print(text, file=sys.stderr)",
        f"{_MAIN}::test_an_error_is_printed_without_its_control_characters",
    ),
    _fault(
        "a warning is printed raw",
        "cli/screen.py",
        'self._err.write("".join(plain(part) for part in parts) + "\\n")',
        'self._err.write("".join(part.text if isinstance(part, Span) else part for part in parts) + "\\n")',
        f"{_SCREEN}::test_nothing_that_is_written_moves_the_terminal",
    ),
    _fault(
        "a block is printed raw",
        "cli/screen.py",
        "visible_block(text).split",
        "text.split",
        f"{_SCREEN}::test_nothing_that_is_written_moves_the_terminal",
    ),
    _fault(
        "a table in a pipe is printed raw",
        "cli/screen.py",
        '"\\t".join(plain(part) for part in row)',
        '"\\t".join(part.text if isinstance(part, Span) else part for part in row)',
        f"{_SCREEN}::test_nothing_that_is_written_moves_the_terminal",
    ),
    _fault(
        "a person reads the names of tools",
        "service/wire/hints.py",
        "Wording.PAGES: 2}",
        "Wording.PAGES: 0}",
        f"{_HINTS}::test_a_step_names_tools_to_agents_only",
    ),
    _fault(
        "the command line is not asked for its words",
        "client/connection.py",
        '            WORDING_HEADER: "commands",\n',
        "",
        "tests/acceptance/cli/test_reviews.py::test_hints_name_commands_and_not_tools",
    ),
)

FILES = (
    _fault(
        "a carriage return stays when our entry goes",
        "integrations/formats/json_format.py",
        '.rstrip(" \\t\\r\\n"))',
        '.rstrip(" \\t\\n"))',
        f"{_JSON}::test_a_windows_file_that_changed_since_keeps_no_stray_carriage_return",
    ),
    _fault(
        "a table right behind a byte order mark is not found",
        "integrations/formats/toml_format.py",
        "    offset = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0\n",
        "    offset = 0\n",
        f"{_TOML}::test_a_table_right_behind_a_byte_order_mark_is_found_and_cut",
    ),
    _fault(
        "an empty line stays above our table in a Windows file",
        "integrations/formats/toml_format.py",
        '    for blank in ("\\r\\n", "\\n"):\n',
        '    for blank in ("\\n",):\n',
        f"{_TOML}::test_in_a_windows_file_that_changed_since_the_empty_line_above_ours_goes_too",
    ),
    _fault(
        "the bridge takes a new key on each attempt",
        "cli/broker/bridge.py",
        "                body = json.dumps(self._with_key(message, key)).encode()\n",
        "                body = json.dumps(self._with_key(message, secrets.token_hex(8))).encode()\n",
        f"{_BRIDGE}::test_a_writing_call_is_asked_again_with_the_key_that_it_had",
    ),
    _fault(
        "the bridge asks once only",
        "cli/broker/bridge.py",
        "                if call.is_cancelled or call.has_answered or time.monotonic() > end:\n",
        "                if True:\n",
        f"{_BRIDGE}::test_a_writing_call_is_asked_again_with_the_key_that_it_had",
    ),
)

POOL = (
    _fault(
        "the pool has no cooldown",
        "pool/policy.py",
        "situation.last_spawn_at + limits.spawn_cooldown",
        "situation.last_spawn_at",
        f"{_POLICY}::test_the_cooldown_holds_to_the_millisecond",
    ),
    _fault(
        "failures bring no pause",
        "pool/policy.py",
        "        pause = pause_after(situation.failures_in_a_row, limits)\n",
        "        pause = 0\n",
        f"{_POLICY}::test_the_pause_after_failures_holds_to_the_millisecond",
    ),
    _fault(
        "the pool is one larger than its size",
        "pool/policy.py",
        "    if len(situation.reviewers) >= limits.max_pool_size:\n",
        "    if len(situation.reviewers) > limits.max_pool_size:\n",
        f"{_POLICY}::test_a_draining_reviewer_takes_room_but_is_not_active",
    ),
    _fault(
        "a reviewer sees the broker's whole environment",
        "pool/launcher.py",
        ' if name in names or name.startswith("LC_")}',
        "}",
        f"{_CHILD}::test_a_reviewer_sees_the_allow_list_and_nothing_else_of_the_brokers_environment",
    ),
    _fault(
        "every agent's variables are handed to each agent",
        "pool/launcher.py",
        "        return frozenset((*module_of(agent).ENVIRONMENT, *self._settings.environment))\n",
        "        return frozenset(n for one in ('codex', 'claude', 'gemini') for n in module_of(one).ENVIRONMENT)\n",
        f"{_CHILD}::test_a_reviewer_sees_the_allow_list_and_nothing_else_of_the_brokers_environment",
    ),
    _fault(
        "a token is redacted in the log alone",
        "pool/process.py",
        "            self._tell(Output(shown))\n",
        "            self._tell(Output(lines))\n",
        f"{_CHILD}::test_a_childs_secret_is_replaced_in_its_log_and_in_the_lines_that_are_passed_on",
    ),
    _fault(
        "a token is redacted once in a line",
        "pool/process.py",
        'line.replace(self._secret, b"[token]")',
        'line.replace(self._secret, b"[token]", 1)',
        f"{_CHILD}::test_a_childs_secret_is_replaced_in_its_log_and_in_the_lines_that_are_passed_on",
    ),
)

_DEADLINES = "tests/integration/service/test_deadlines.py"
_MOVED = "(reviews.c.claim_expires_at, reviews.c.reserved_until, review_failures.c.retry_at)"
CLOCK: tuple[Fault, ...] = (
    Fault(
        name="reservations do not move when the clock is set",
        file="store/writes.py",
        edits=((_MOVED, "(reviews.c.claim_expires_at, review_failures.c.retry_at)"),),
        tests=(f"{_DEADLINES}::test_a_reservation_lasts_as_long_as_it_was_meant_whatever_the_clock_does",),
    ),
    Fault(
        name="the pool's pauses do not move when the clock is set",
        file="store/writes.py",
        edits=((_MOVED, "(reviews.c.claim_expires_at, reviews.c.reserved_until)"),),
        tests=(f"{_DEADLINES}::test_the_pool_leaves_a_review_alone_as_long_as_it_was_meant_whatever_the_clock_does",),
    ),
)

_PLANS = "tests/acceptance/gate/test_plans.py"
PLANS = (
    _fault(
        "a ticket lets code pass whose plan is not approved",
        "gate/receipts.py",
        "        if policy.plan_first:\n",
        "        if False:\n",
        f"{_PLANS}::test_approved_code_lands_only_after_its_plan_and_only_as_long_as_the_plan_stays",
    ),
    _fault(
        "a plan that changed after its approval counts as approved",
        "domain/gate/judge.py",
        "        if approval.steps[plan.path].new in plan.entries and ",
        "        if plan.entries and ",
        "tests/unit/domain/gate/test_plans.py"
        "::test_a_plan_is_approved_if_a_review_of_this_repository_ends_with_its_content",
    ),
    _fault(
        "the hook looks at the plans of all phases",
        "gate/question.py",
        "if phase is None or is_of_phase(name, phase)]",
        "]",
        f"{_PLANS}::test_every_unfinished_plan_of_the_phase_counts_and_no_other",
    ),
)

MOVING = (
    _fault(
        "a move does not take the database's lock",
        "maintenance.py",
        "    async with _locked(source):\n        await _refuse_moved(source, target)\n",
        "    async with contextlib.nullcontext():\n        await _refuse_moved(source, target)\n",
        f"{_MOVING}::test_a_database_that_a_broker_uses_is_not_moved",
    ),
    _fault(
        "a broker that waited for the lock opens a database that was moved",
        "store/sqlite_store.py",
        "            # A move may have held the lock until now.\n            _refuse_elsewhere(self._database)\n",
        "",
        f"{_MOVING}::test_a_broker_that_waits_for_the_lock_finds_the_mark",
    ),
    _fault(
        "a move from PostgreSQL lets brokers write",
        "store/postgres/copying.py",
        '    sa.text(f"LOCK TABLE {_ALL_TABLES} IN SHARE MODE"),\n',
        "",
        f"{_SEVERAL_BROKERS}::test_a_broker_that_could_not_say_that_it_runs_stores_nothing_during_a_move_nor_after_it",
    ),
    _fault(
        "commands that wait for the head take all connections",
        "store/postgres/store.py",
        "asyncio.Semaphore(CONNECTIONS - _FOR_READS)",
        "asyncio.Semaphore(CONNECTIONS)",
        f"{_SEVERAL_BROKERS}::test_reads_go_on_while_all_commands_wait",
    ),
    _fault(
        "a copy is not compared",
        "maintenance.py",
        "            if different := verification.differing_tables(rest.file, copy):\n",
        "            if different := []:\n",
        f"{_MOVING}::test_a_row_that_was_not_stored_is_noticed_before_the_source_is_marked",
    ),
    _fault(
        "the target can be used before the source is marked",
        "maintenance.py",
        "            await rest.mark_moved(str(target))\n            await place.finish()\n",
        "            await place.finish()\n            await rest.mark_moved(str(target))\n",
        f"{_MOVING}::test_a_move_that_died_before_its_target_was_finished_is_done_again",
    ),
)

SPEED = (
    _fault(
        "a command that failed half way stays half done",
        "store/sqlite_writer.py",
        "            if self._connection.total_changes != changes:\n",
        "            if self._connection.total_changes < changes:\n",
        f"{_STORAGE}::test_a_command_that_fails_is_undone_alone",
        f"{_STORAGE}::test_a_command_that_fails_in_a_batch_of_one_leaves_nothing",
    ),
    _fault(
        "a command that failed half way is not taken back in its savepoint",
        "store/sqlite_writer.py",
        '            self._connection.execute("ROLLBACK TO command")\n',
        "",
        f"{_STORAGE}::test_a_command_that_fails_is_undone_alone",
    ),
    _fault(
        "values of a histogram are counted twice: in its sum and beside it",
        "store/statistics.py",
        "        statements.run(_FORGET, key)\n",
        "",
        f"{_STATISTICS}::test_a_histogram_of_many_values_is_one_row_and_a_few_beside_it",
    ),
    _fault(
        "a histogram's sum forgets what was in it",
        "store/statistics.py",
        "        spread = _unpacked(*stored[1:]) if stored else Histogram()\n",
        "        spread = Histogram()\n",
        f"{_STATISTICS}::test_a_histogram_of_many_values_is_one_row_and_a_few_beside_it",
    ),
    _fault(
        "a histogram is never summed up",
        "store/writes.py",
        "        statistics.sum_up(statements, changed)\n",
        "        pass\n",
        f"{_STATISTICS}::test_a_histogram_of_many_values_is_one_row_and_a_few_beside_it",
    ),
    _fault(
        "a savepoint's old pages go to a temporary file",
        "store/sqlite_store.py",
        '        connection.execute("PRAGMA temp_store=MEMORY")\n',
        "",
        f"{_STORE}::test_a_command_that_changes_many_pages_writes_no_temporary_file",
    ),
)

FAULTS: tuple[Fault, ...] = (
    *WAITING,
    *STORAGE,
    *CLAIMS,
    *SHOWN,
    *FILES,
    *POOL,
    *CLOCK,
    *PLANS,
    *MOVING,
    *SPEED,
    *SECURITY,
)
