"""One fault for each defence in docs/security.md: the defence is taken out, and the tests that the page names fail.

A name begins with the number of the finding, as in the page: `make faults ARGS=H1:` tries one finding, and
`make faults ARGS=security` all of them.
"""

from tests.faults.fault import Fault, fault

_CLAIMS = "tests/integration/git/test_claims.py"
_DIGEST = "tests/integration/git/test_digest.py"
_LANDS = "tests/integration/git/test_lands.py"
_APPLYING = "tests/unit/domain/patch/test_applying.py"
_WALK = "tests/acceptance/clone/test_walk.py"
_MODULES = "tests/acceptance/clone/test_planted_modules.py"
_STATE = "tests/acceptance/clone/test_state_files.py"
_DISCOVERY = "tests/acceptance/clone/test_discovery.py"
_HOOK = "tests/acceptance/gate/test_hook.py"
_PRIVATE = "tests/integration/files/test_private.py"
_POOL = "tests/unit/settings/test_pool.py"
_SOURCES = "tests/acceptance/gate/test_policy_sources.py"
_RECIPE = "tests/unit/pool/test_recipe.py"
_IDENTITY = "tests/acceptance/pool/test_identity.py"
_ACCESS = "tests/unit/domain/rules/test_access.py"
_ODD = "tests/integration/service/test_odd_moments.py"
_HTTP = "tests/acceptance/broker/test_http.py"
_PAGES = "tests/acceptance/web/test_pages.py"
_PROSE = "tests/unit/web/markdown/test_prose.py"
_TABLE = "tests/integration/web/test_who_may_what.py"
_SIGN_IN = "tests/integration/web/test_sign_in.py"
_PROXY = "tests/integration/web/test_behind_a_proxy.py"
_TOKENS = "tests/integration/service/test_tokens.py"
_PROJECT = "tests/integration/service/test_one_project.py"
_STARTING = "tests/acceptance/broker/test_starting.py"
_HOOK_ELSEWHERE = "tests/acceptance/gate/test_elsewhere.py"
_GATE = "tests/integration/service/test_gate.py"

# What git reads: another layer stands behind each of these, so a claim is misled only without all three.
_REPLACED_OBJECTS_COUNT = ("git/command.py", '"GIT_NO_REPLACE_OBJECTS": "1", ', "")
_CLAIMS_READ_THE_REAL_REPOSITORY = (
    "git/objects.py",
    '        "GIT_DIR": str(repository),\n',
    '        "GIT_DIR": os.path.dirname(objects),\n',
)
_OBJECTS_ARE_BELIEVED = ("git/objects.py", "        if checksum.hexdigest() != object_id:\n", "        if False:\n")

# Which broker is believed.
_RUNTIME_FILE_COUNTS = (
    "settings/runtime_file.py",
    "        # Left by a broker that was killed, or it came with the repository.\n        return None\n",
    "        return _parsed(path, content)\n",
)
_NOBODY_PROVES_ANYTHING = (
    "client/discovery.py",
    '    if not announcement.is_proven_by(health.get("proof"), challenge):\n',
    "    if False:\n",
)

OTHER_CONTENT = (
    fault(
        "security H1: replace refs count",
        *_REPLACED_OBJECTS_COUNT,
        f"{_DIGEST}::test_a_replaced_object_is_read_as_it_was_committed",
    ),
    Fault(
        name="security H1: replace refs count for a claim",
        file=_REPLACED_OBJECTS_COUNT[0],
        edits=(_REPLACED_OBJECTS_COUNT[1:],),
        also=(_CLAIMS_READ_THE_REAL_REPOSITORY, _OBJECTS_ARE_BELIEVED),
        tests=(f"{_CLAIMS}::test_a_replace_ref_does_not_change_what_a_claim_names",),
    ),
    fault(
        "security H1: grafts and shallow boundaries choose the parent",
        "git/objects.py",
        '    parents = [text_of(line.removeprefix(b"parent ")) for line in headers if line.startswith(b"parent ")]\n',
        '    names = _must(folder, "rev-parse", commit + "^@", environment=environment)\n'
        "    parents = text_of(names).split()\n",
        f"{_DIGEST}::test_grafts_and_shallow_boundaries_do_not_choose_the_parent",
    ),
    fault(
        "security H1: objects are not hashed again",
        *_OBJECTS_ARE_BELIEVED,
        f"{_CLAIMS}::test_an_object_that_was_overwritten_in_place_is_noticed",
        f"{_CLAIMS}::test_a_result_that_the_repository_holds_with_other_content_is_noticed",
    ),
    fault(
        "security H1: settings and attributes of the repository count for a claim",
        *_CLAIMS_READ_THE_REAL_REPOSITORY,
        f"{_CLAIMS}::test_the_repositorys_own_settings_and_attributes_do_not_change_a_digest",
    ),
    fault(
        "security H1: apply does not compare what it wrote",
        "cli/commands/apply.py",
        "        if not check and not _is_in(root, approved, index=index):\n",
        "        if False:\n",
        f"{_LANDS}::test_what_a_filter_would_make_of_an_approved_change_is_taken_back",
    ),
    fault(
        "security H1: a claim and apply believe objects",
        *_OBJECTS_ARE_BELIEVED,
        f"{_LANDS}::test_what_lands_is_what_the_shown_diff_makes_of_the_shown_base",
    ),
    fault(
        "security H2: a hunk may land away from its line",
        "git/check.py",
        "        return content is not None and self._content_id(content, outcome.mode) == outcome.object_id\n",
        "        return content is not None or source is not None\n",
        f"{_CLAIMS}::test_a_hunk_away_from_its_own_line_is_sent_back",
        f"{_CLAIMS}::test_an_honest_diff_against_an_older_base_tells_its_offset",
        f"{_CLAIMS}::test_a_counter_patch_away_from_its_own_line_is_refused",
    ),
    fault(
        "security H2: a moved hunk needs no base",
        "git/check.py",
        "        older = self._objects.blob_named(file.base_id) if file.base_id else None\n",
        "        return True\n        older = None\n",
        f"{_CLAIMS}::test_a_hunk_away_from_its_own_line_is_sent_back",
    ),
    fault(
        "security H3: a path may be changed twice",
        "domain/patch/safety.py",
        "    if repeated:\n",
        "    if False:\n",
        f"{_CLAIMS}::test_a_path_that_a_diff_changes_twice_is_refused",
    ),
    fault(
        "security H3: an interdiff compares by text on one base too",
        "domain/patch/interdiff.py",
        "    agree = _same_blob(before, after) or _bases_agree(before_lines, after_lines)\n",
        "    agree = False\n",
        f"{_APPLYING}::test_a_hunk_that_moved_to_a_place_with_equal_context_is_shown",
    ),
    fault(
        "security H3: an interdiff may be empty although the diffs differ",
        "domain/patch/interdiff.py",
        "    if text or old == new or interdiff(old, new):\n        return text\n",
        "    if text or True:\n        return text\n",
        f"{_APPLYING}::test_where_no_line_is_the_authors_the_whole_diff_is_given_with_a_note",
    ),
    fault(
        "security H3: a lost final line feed is not shown",
        "domain/patch/interdiff.py",
        "        yield line if line.is_ended else replace(line, text=line.text + _NO_LINE_FEED)\n",
        "        yield replace(line)\n",
        f"{_APPLYING}::test_a_lost_final_line_feed_is_told",
        f"{_APPLYING}::test_on_one_base_an_interdiff_is_empty_only_if_the_outcome_is_the_same",
    ),
    fault(
        "security H4: submodules can be ignored",
        "git/objects.py",
        '"--no-abbrev", "--ignore-submodules=none",\n',
        '"--no-abbrev",\n',
        f"{_DIGEST}::test_a_submodule_counts_whatever_says_that_it_is_ignored",
    ),
    fault(
        "security H4: nothing has a digest",
        "git/objects.py",
        "digest_of_sorted(raw_records(steps)) if steps else None\n",
        "digest_of_sorted(raw_records(steps))\n",
        f"{_DIGEST}::test_nothing_has_no_digest",
    ),
    fault(
        "security L1: every file mode is taken",
        "domain/patch/safety.py",
        "    if modes:\n",
        "    if False:\n",
        f"{_CLAIMS}::test_a_file_mode_that_git_does_not_store_is_refused",
    ),
    fault(
        "security L1: a mode other than the one shown is taken",
        "git/check.py",
        "            if source is not None and section.source_mode not in {None, source.mode}:\n",
        "            if False:\n",
        f"{_CLAIMS}::test_a_mode_other_than_the_one_shown_is_sent_back",
    ),
    fault(
        "security L2: a diff that can be read only in part is claimed",
        "git/check.py",
        "return Applies(digest=None) if already_applied else DoesNotApply(git_says=self._unreadable(str(error)))",
        "return Applies(digest='sha256:' + '0' * 64) if already_applied else Applies(digest=str(error))",
        f"{_CLAIMS}::test_a_diff_that_cannot_be_read_completely_has_no_digest",
    ),
    fault(
        "security: git is started elsewhere",
        "processes.py",
        '        listed = subprocess.run(["tasklist", "/FI", f"PID eq {pid}"]',
        '        listed = subprocess.run(["git", "/FI", f"PID eq {pid}"]',
        "tests/unit/test_one_git.py::test_no_other_place_starts_git",
    ),
)

A_CLONE = (
    Fault(
        name="security C1: Python looks for modules in the working folder",
        file="cli/broker/background.py",
        edits=(
            ('[sys.executable, "-P", "-m", module', '[sys.executable, "-m", module'),
            ('{**inherited, "PYTHONSAFEPATH": "1"}', "{**inherited}"),
        ),
        tests=(f"{_MODULES}::test_a_broker_in_the_background_runs_nothing_of_the_repository",),
    ),
    fault(
        "security C1: Python is started elsewhere",
        "processes.py",
        '        listed = subprocess.run(["tasklist", "/FI"',
        '        listed = subprocess.run([sys.executable, "/FI"',
        f"{_MODULES}::test_no_other_place_starts_python",
    ),
    fault(
        "security H5: a link under one of our names is taken",
        "settings/state_files.py",
        "        _refuse_other_than_file(path, where)\n",
        "        assert path or where\n",
        f"{_STATE}::test_a_link_under_one_of_our_names_is_refused_and_its_target_left",
    ),
    fault(
        "security H5: the folder may be a link",
        "settings/state_files.py",
        "    for link in links_in(database.path.parent, below=root):\n",
        "    for link in list(links_in(database.path.parent, below=root))[:0]:\n",
        f"{_STATE}::test_a_planning_folder_that_is_a_link_is_refused_by_broker_and_clients",
    ),
    Fault(
        name="security H5: files are opened through links",
        file="files.py",
        edits=(
            ('_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)', "_NO_FOLLOW = 0"),
            ("    if not follow_links and _is_link(path):\n", "    if False:\n"),
        ),
        tests=(f"{_PRIVATE}::test_a_private_file_is_not_opened_through_a_link_and_becomes_its_owners_alone",),
    ),
    fault(
        "security H5: the configuration may move the work tree",
        "git/discovery.py",
        "    _refuse_moved(folder, own)\n",
        "",
        f"{_STATE}::test_a_configuration_that_moves_the_work_tree_is_refused",
    ),
    fault(
        "security H6: a runtime file counts without the lock",
        *_RUNTIME_FILE_COUNTS,
        f"{_DISCOVERY}::test_a_runtime_file_without_a_held_lock_is_not_believed",
        f"{_DISCOVERY}::test_after_a_crash_whoever_has_the_port_is_not_our_broker",
        f"{_WALK}::test_no_command_sends_anything_to_whom_a_clone_names",
    ),
    Fault(
        name="security H6: down signals whom a runtime file names",
        file=_RUNTIME_FILE_COUNTS[0],
        edits=(_RUNTIME_FILE_COUNTS[1:],),
        also=(_NOBODY_PROVES_ANYTHING,),
        tests=(f"{_DISCOVERY}::test_down_kills_nobody_whom_a_clone_names",),
    ),
    fault(
        "security H6: the gate's hook believes every runtime file",
        "gate/hook.py",
        "    return (host, int(port)) if holder and holder == _pid_in(text) else None\n",
        "    return host, int(port)\n",
        f"{_HOOK}::test_a_runtime_file_is_believed_only_while_the_process_that_it_names_holds_the_lock",
    ),
    fault(
        "security H6: the first process may be signalled",
        "processes.py",
        "    if pid <= 1:\n",
        "    if pid < 1:\n",
        f"{_DISCOVERY}::test_down_never_signals_a_pid_that_stands_for_many",
    ),
    fault(
        "security H6: whoever answers is our broker",
        *_NOBODY_PROVES_ANYTHING,
        f"{_DISCOVERY}::test_whoever_does_not_know_the_secret_gets_no_token",
    ),
    fault(
        "security H7: a tracked database is opened",
        "settings/config.py",
        "    for path in discovery.tracked_among(root, state_files(database)):\n",
        "    for path in discovery.tracked_among(root, state_files(database))[:0]:\n",
        f"{_STATE}::test_the_broker_and_the_doctor_refuse_a_database_that_came_with_the_clone",
    ),
    fault(
        "security H7: a schema is believed",
        "store/schema.py",
        "    if strange:\n",
        "    if False:\n",
        f"{_STATE}::test_a_database_with_anything_that_we_did_not_make_is_refused",
        f"{_STATE}::test_verify_and_export_refuse_a_database_that_somebody_altered",
        f"{_HOOK}::test_a_database_that_somebody_altered_approves_nothing",
    ),
    fault(
        "security H7: a schema may call functions",
        "store/schema.py",
        "PRAGMA trusted_schema=OFF",
        "PRAGMA trusted_schema=ON",
        f"{_STATE}::test_every_connection_distrusts_the_schema",
    ),
    fault(
        "security H9: a file is untracked if git does not answer",
        "git/discovery.py",
        "    if entries is None:\n        return list(files)\n",
        "    if entries is None:\n        return []\n",
        f"{_STATE}::test_whether_git_tracks_a_file_is_answered_yes_unless_git_says_no",
    ),
    fault(
        "security H9: a file in another repository is untracked",
        "git/discovery.py",
        "    return top is not None and _real(top) == root\n",
        "    return True\n",
        f"{_STATE}::test_whether_git_tracks_a_file_is_answered_yes_unless_git_says_no",
    ),
    fault(
        "security M2: a tracked file starts reviewers",
        "settings/config.py",
        "    if file.is_tracked and POOL not in file.users and _turns_pool_on(kept.get(POOL)):\n",
        "    if False:\n",
        f"{_POOL}::test_a_tracked_file_cannot_start_reviewers",
    ),
    fault(
        "security M2: a tracked file names the prompt and the fence",
        "settings/owners.py",
        '        return outside or ("is not taken from this file" if wanted.is_tracked else None)\n',
        "        return outside\n",
        f"{_POOL}::test_a_tracked_file_names_no_prompt_and_no_fence",
    ),
    fault(
        "security M2: a tracked file raises limits",
        "settings/owners.py",
        "        if not wanted.is_tracked or self.is_as_strict(wanted.value, wanted.usual):\n",
        "        if True:\n",
        f"{_POOL}::test_numbers_of_a_tracked_file_tighten_the_users_limits_and_do_not_loosen_them",
    ),
    fault(
        "security M2: a number that is spelled as text raises a limit",
        "settings/config.py",
        "        wanted = typed(section, path[-1], value)\n",
        "        wanted = value if isinstance(value, int) else typed_or_default(section, path[-1], {})\n",
        "tests/unit/settings/test_schema.py::test_a_tracked_file_tightens_and_does_not_loosen",
    ),
    fault(
        "gate: the environment chooses what is exempt",
        "domain/gate/policy.py",
        "exempt=(*policy.exempt, Patterns(exempt)) if policy.exempt and exempt is not None else policy.exempt,",
        "exempt=(Patterns(exempt),) if exempt is not None else policy.exempt,",
        f"{_SOURCES}::test_the_environment_does_not_loosen_the_gate",
    ),
    fault(
        "gate: the broker is not told what the hook's environment demands",
        "gate/hook.py",
        "        return lines + demands_line()\n",
        "        return lines\n",
        f"{_SOURCES}::test_a_mode_in_the_environment_is_what_the_hook_does",
    ),
    fault(
        "security L3: everything under a name is read",
        "files.py",
        "    if not stat.S_ISREG(status.st_mode):\n",
        "    if False:\n",
        f"{_PRIVATE}::test_a_pipe_a_folder_and_a_large_file_are_refused_at_once",
    ),
    fault(
        "security L3: a pipe is waited for",
        "files.py",
        '_NO_WAIT = getattr(os, "O_NONBLOCK", 0)',
        "_NO_WAIT = 0",
        f"{_STATE}::test_a_named_pipe_as_configuration_holds_nobody_up",
    ),
    Fault(
        name="security L3: a file of any size is read",
        file="files.py",
        edits=(
            ("        if status.st_size > largest:\n", "        if False:\n"),
            ("    if len(content) > largest:\n", "    if False:\n"),
        ),
        tests=(f"{_PRIVATE}::test_a_pipe_a_folder_and_a_large_file_are_refused_at_once",),
    ),
    fault(
        "security L8: a database may be in a git folder",
        "settings/state_files.py",
        '_GIT_FOLDERS = {".git", "git~1"}\n',
        "_GIT_FOLDERS = set[str]()\n",
        f"{_STATE}::test_a_database_is_never_in_a_git_folder",
    ),
    fault(
        "security L9: a folder that names our git folder is a worktree",
        "git/repository.py",
        "        return self._root is not None and root in self._worktrees(self._root)\n",
        "        return root in self._worktrees(self._root or Path()) or Path(root, '.git').is_file()\n",
        f"{_CLAIMS}::test_a_folder_that_only_names_our_git_folder_is_not_a_worktree",
    ),
)

A_TOKEN = (
    fault(
        "security token: every role may do everything",
        "domain/rules/access.py",
        "    if right not in _RIGHTS[caller.kind]:\n",
        "    if False:\n",
        f"{_TABLE}::test_every_route_admits_the_roles_of_the_table_and_no_other",
        f"{_TABLE}::test_every_tool_is_for_the_roles_of_the_table_and_no_other",
    ),
    fault(
        "security token: a route needs no token",
        "web/edge.py",
        "            raise unauthenticated(has_token=bearer is not None)\n",
        "            return\n",
        f"{_TABLE}::test_without_a_live_token_every_route_answers_401",
    ),
    fault(
        "security token: a token does not expire",
        "domain/caller.py",
        "        return TokenState.EXPIRED if is_over else TokenState.LIVE\n",
        "        return TokenState.LIVE if is_over else TokenState.LIVE\n",
        f"{_TOKENS}::test_a_token_is_dead_when_it_expires_or_is_revoked",
        f"{_TABLE}::test_without_a_live_token_every_route_answers_401",
    ),
    fault(
        "security token: a revoked token lives on",
        "domain/caller.py",
        "        if self.revoked_at is not None:\n",
        "        if False:\n",
        f"{_TOKENS}::test_a_token_is_dead_when_it_expires_or_is_revoked",
        f"{_SIGN_IN}::test_a_revoked_token_has_signed_out",
    ),
    fault(
        "security token: the token itself is stored",
        "service/access.py",
        '    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()\n',
        "    return token[:64] or hashlib.sha256().hexdigest()\n",
        f"{_TOKENS}::test_the_database_holds_no_token",
    ),
    fault(
        "security token: only the beginning of a token is compared",
        "service/access.py",
        '    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()\n',
        "    return hashlib.sha256(token[:20].encode()).hexdigest()\n",
        f"{_TOKENS}::test_a_token_that_is_nearly_right_is_nobodys",
    ),
    fault(
        "security token: a project's token sees every project over MCP",
        "mcp/registry.py",
        "        result = await tool(broker.for_project(caller.project), arguments, audience, caller)\n",
        "        result = await tool(broker, arguments, audience, caller)\n",
        f"{_PROJECT}::test_a_review_of_another_project_answers_as_one_that_does_not_exist",
        f"{_PROJECT}::test_lists_feeds_counts_and_the_audit_have_one_project",
    ),
    fault(
        "security token: a project's token sees every project in the dashboard",
        "web/edge.py",
        "        application = self._whole if project is None else self._of(project)\n",
        "        application = self._whole\n",
        f"{_PROJECT}::test_pages_show_one_project",
        f"{_PROJECT}::test_routes_know_one_project",
    ),
    fault(
        "security token: a project's administrator administers the whole broker",
        "domain/rules/access.py",
        "    if right is Right.ADMINISTER and caller.project is not None:\n",
        "    if False:\n",
        f"{_PROJECT}::test_what_is_for_the_whole_broker_is_forbidden",
    ),
    fault(
        "security token: a project's person overrides the gate for the whole repository",
        "service/commands/gate.py",
        "        if self._core.project is not None:\n            # It lets",
        "        if False:\n            # It lets",
        f"{_PROJECT}::test_what_is_for_the_whole_broker_is_forbidden",
    ),
    fault(
        "security token: an override is judged by the policy of the folder that the call names",
        "service/commands/gate.py",
        "        if self._policy_of(await self._root_of(origin, root, is_elsewhere=is_elsewhere)).override is",
        "        if self._policy_of(root).override is",
        f"{_GATE}::test_an_override_is_allowed_or_not_by_the_policy_of_the_served_repository",
    ),
    fault(
        "security token: a user's broker reads policies everywhere",
        "service/commands/gate.py",
        "is_elsewhere or root is None else await self._core.repository.resolve_workspace(root)\n",
        "is_elsewhere or root is None else root\n",
        f"{_GATE}::test_a_users_broker_reads_no_policy_outside_its_allowed_roots",
    ),
    fault(
        "security token: a packed repository chooses whose addresses the gate's commands read",
        "gate/install.py",
        '        known.known["user_file"] = str(locations.user_file())\n',
        "",
        f"{_HOOK_ELSEWHERE}::test_a_folder_that_somebody_packed_does_not_choose_who_is_asked",
    ),
    fault(
        "security token: without the team's broker this machine's own answers",
        "gate/hook.py",
        "        return ask_remote(site, url, path, body)\n",
        "        outcome = ask_remote(site, url, path, body)\n"
        '        if "could not be asked" not in outcome[1]:\n            return outcome\n',
        f"{_HOOK_ELSEWHERE}::test_while_the_teams_broker_is_down_nothing_on_this_machine_lets_a_commit_through",
    ),
    fault(
        "security gate: a ticket is left without asking the judge",
        "gate/receipts.py",
        '    return answer.outcome == "pass"\n',
        "    return bool(answer)\n",
        "tests/integration/service/test_one_judge.py::test_a_rule_that_is_added_holds",
    ),
    fault(
        "security gate: a receipt is believed whatever its signature",
        "gate/receipts.py",
        "            if candidate.is_signed_by(key.has_signed):\n",
        "            if candidate:\n",
        "tests/acceptance/gate/test_receipts.py::test_a_tampered_receipt_proves_nothing",
    ),
    fault(
        "security token: tickets of this machine count where another one decides",
        "gate/install.py",
        '"$tickets${{BROKER_URL-}}{demands}" = count',
        '"$tickets{demands}" = count',
        f"{_HOOK_ELSEWHERE}::test_the_environment_names_a_broker_and_tickets_of_this_machine_do_not_count_then",
    ),
    fault(
        "security token: a caller may take any name",
        "domain/rules/access.py",
        "        if proven is not None and argument != AGENT_TYPE and not same_identity(proven, name):\n",
        "        if False:\n",
        f"{_TOKENS}::test_a_name_that_is_not_the_tokens_is_forbidden_and_recorded",
        f"{_ACCESS}::test_a_name_is_used_by_whom_it_belongs_to",
    ),
    fault(
        "security token: the self-declared name counts instead of the token's",
        "domain/caller.py",
        "        return self.proven_identity or named\n",
        "        return named\n",
        f"{_TOKENS}::test_who_uploaded_under_one_name_cannot_approve_by_anothers_claim",
    ),
    fault(
        "security token: a sign-in link works twice",
        "store/beside_reviews.py",
        'SIGN_IN_LINKS.find(self._statements, _TAKE_LINK, {"of_hash": code_hash})',
        "SIGN_IN_LINKS.find(self._statements, sa.select(*SIGN_IN_LINKS.columns), {})",
        f"{_SIGN_IN}::test_a_link_works_once_and_sets_a_strict_cookie",
    ),
    fault(
        "security token: a sign-in link does not expire",
        "service/commands/tokens.py",
        "            return None if link is None or link.expires_at <= tx.now else link\n",
        "            return link\n",
        f"{_SIGN_IN}::test_a_link_is_over_after_a_minute",
    ),
    fault(
        "security token: the database holds the tokens of sign-in links",
        "service/commands/tokens.py",
        '    return Fernet(_key_of(code)).encrypt(token.encode("utf-8", "surrogateescape")).decode("ascii")\n',
        "    return token or Fernet\n",
        f"{_PROXY}::test_the_database_holds_neither_a_links_code_nor_its_token",
    ),
    fault(
        "security token: everybody's word about a request counts",
        "server.py",
        "        forwarded_allow_ips=settings.trusted_proxies,\n",
        '        forwarded_allow_ips="*",\n',
        f"{_PROXY}::test_what_a_proxy_says_about_a_request_counts_only_if_it_is_trusted",
    ),
)

A_REVIEWER = (
    fault(
        "security H8: a project's name may say something",
        "service/validation.py",
        "    if not _PROJECT.fullmatch(value):\n",
        "    if False:\n",
        "tests/integration/service/test_bad_input.py::test_a_project_that_could_say_something_in_a_prompt_is_refused",
    ),
    fault(
        "security H8: a project is not quoted in the prompt",
        "pool/launcher.py",
        "_PROJECT.format(json.dumps(request.project))",
        "_PROJECT.format(request.project)",
        f"{_RECIPE}::test_a_project_is_quoted_in_the_prompt",
    ),
    fault(
        "security H8: a value may begin a line in a prompt",
        "pool/agents/__init__.py",
        "    refuse_unprintable(request)\n",
        "",
        f"{_RECIPE}::test_no_value_begins_a_line_in_a_prompt",
    ),
    fault(
        "security M1: a reviewer speaks for every side",
        "domain/rules/access.py",
        "    if side is role:\n",
        "    if side is role or role:\n",
        f"{_IDENTITY}::test_a_reviewers_token_speaks_for_no_proposer_and_no_person_on_any_route",
    ),
    fault(
        "security M1: every caller has every right",
        "domain/rules/access.py",
        "    if right not in _RIGHTS[caller.kind]:\n",
        "    if False:\n",
        f"{_IDENTITY}::test_a_reviewers_token_speaks_for_no_proposer_and_no_person_on_any_route",
        f"{_ACCESS}::test_each_kind_of_caller_has_the_rights_of_the_table",
    ),
    fault(
        "security M1: routes are for everybody",
        "web/edge.py",
        "    return Right.ACT_AS_PERSON\n",
        "    return Right.READ\n",
        f"{_IDENTITY}::test_a_reviewers_token_speaks_for_no_proposer_and_no_person_on_any_route",
    ),
    fault(
        "security L7: a reviewer resolves what a person found",
        "domain/rules/access.py",
        "    if not (caller.proven and caller.kind is CallerKind.REVIEWER and is_human(finding.raised_by)):\n",
        "    if finding:\n",
        f"{_ACCESS}::test_a_reviewer_program_does_not_resolve_what_a_person_found",
    ),
    fault(
        "security L6: names may hold what cannot be seen",
        "service/validation.py",
        "    if hidden:\n",
        "    if False:\n",
        f"{_ODD}::test_a_name_that_cannot_be_told_from_another_is_refused_wherever_it_is_given",
    ),
    fault(
        "security L6: the broker's own names can be taken",
        "service/validation.py",
        "    if is_reserved(checked):\n",
        "    if False:\n",
        f"{_ODD}::test_a_name_that_cannot_be_told_from_another_is_refused_wherever_it_is_given",
    ),
    fault(
        "security L6: every spelling is another identity",
        "domain/text.py",
        "        return identity.strip().casefold()\n",
        "        return identity\n",
        f"{_ODD}::test_no_spelling_of_a_name_is_another_identity",
    ),
    fault(
        "security L6: every form of a letter is another identity",
        "domain/text.py",
        '    plain = unicodedata.normalize("NFKC", identity)\n',
        "    plain = identity\n",
        f"{_ODD}::test_no_spelling_of_a_name_is_another_identity",
    ),
)

OTHER_USERS = (
    fault(
        "security L8: others read the log files",
        "observe/logs.py",
        "open_private(Path(self.baseFilename), os.O_WRONLY | os.O_CREAT | os.O_APPEND)",
        "os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)",
        f"{_STATE}::test_log_files_are_their_owners_alone_and_are_not_written_through_a_link",
    ),
    fault(
        "security L8: others read the log of a broker in the background",
        "cli/broker/background.py",
        "open(open_private(files.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), ",
        "open(files.log, ",
        f"{_STATE}::test_the_log_of_a_broker_in_the_background_is_its_owners_alone",
    ),
)

COST = (
    fault(
        "security M3: chunks are not counted by the pages",
        "web/edge.py",
        "            if size > limit:\n",
        "            if False:\n",
        f"{_HTTP}::test_endless_chunks_are_refused_at_the_limit_on_every_route",
    ),
    fault(
        "security M3: chunks are not counted by the tools",
        "mcp/fast_path.py",
        "    while more and size <= limit:\n",
        "    while more:\n",
        f"{_HTTP}::test_endless_chunks_are_refused_at_the_limit_and_take_no_memory",
    ),
    fault(
        "security M3: headers never end",
        "web/edge.py",
        "        if self._in_headers and self._header_bytes > MOST_HEADER_BYTES and not self._is_refused:\n",
        "        if False:\n",
        f"{_HTTP}::test_a_header_that_never_ends_is_refused",
    ),
    fault(
        "security M3: headers that come at once are not counted",
        "web/edge.py",
        "        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > MOST_HEADER_BYTES:\n",
        "        if False:\n",
        f"{_HTTP}::test_headers_over_the_limit_are_refused_even_when_they_come_at_once",
    ),
    fault(
        "security L4: a part has any number of lines",
        "web/diff/rendering.py",
        "(at - start == PART_LINES or characters + size > PART_CHARACTERS)",
        "characters + size > PART_CHARACTERS",
        f"{_PAGES}::test_a_very_large_file_comes_in_parts",
        "tests/unit/web/diff/test_parts.py::test_every_line_is_in_exactly_one_part_and_no_part_is_too_large",
    ),
    fault(
        "security L4: a part has any number of characters",
        "web/diff/rendering.py",
        "(at - start == PART_LINES or characters + size > PART_CHARACTERS)",
        "at - start == PART_LINES",
        f"{_PAGES}::test_a_file_of_hidden_characters_is_an_answer_of_bounded_size",
        "tests/unit/web/diff/test_parts.py::test_every_line_is_in_exactly_one_part_and_no_part_is_too_large",
    ),
    fault(
        "security L4: prose is rendered each time",
        "web/diff/rendered_markdown.py",
        "            if text in self._kept:\n                self._kept.move_to_end(text)\n",
        "            if text in self._kept and not text:\n                self._kept.move_to_end(text)\n",
        f"{_PROSE}::test_a_text_is_rendered_once_however_often_it_is_shown",
    ),
    fault(
        "security L4: prose of any size is rendered",
        "web/diff/rendered_markdown.py",
        "    if len(text) > MOST_CHARACTERS or len(lines) > MOST_LINES:\n",
        "    if False:\n",
        f"{_PROSE}::test_a_text_that_is_too_large_is_shown_as_it_was_written",
    ),
    fault(
        "security L4: marking words has no deadline",
        "web/diff/rendering.py",
        "            if time.monotonic() > marks_until:\n",
        "            if False:\n",
        "tests/unit/web/diff/test_rendering.py::test_after_the_deadline_lines_are_shown_without_marked_words",
    ),
    fault(
        "security L5: a full disk is a traceback",
        "server.py",
        '    except OSError as error:\n        raise StartError(\n            f"the broker cannot write',
        '    except BlockingIOError as error:\n        raise StartError(\n            f"the broker cannot write',
        f"{_STARTING}::test_a_disk_that_is_full_at_the_start_is_told_in_a_sentence",
    ),
    fault(
        "security L10: who never reads is read from for ever",
        "web/edge.py",
        "        if self.pipeline:\n            self.flow.pause_reading()\n",
        "",
        "tests/integration/web/test_connections.py::"
        "test_who_sends_and_never_reads_is_read_from_again_only_when_all_is_answered",
    ),
)

SECURITY: tuple[Fault, ...] = (*OTHER_CONTENT, *A_CLONE, *A_TOKEN, *A_REVIEWER, *OTHER_USERS, *COST)
