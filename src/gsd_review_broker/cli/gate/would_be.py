"""The commit that git would make of the index, made in a scratch folder, and the gate's question about it."""

import os
from pathlib import Path

from gsd_review_broker.cli.git import changes
from gsd_review_broker.domain.gate.policy import GatePolicy
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate import hook, install
from gsd_review_broker.git.program import text_of

_AUTHOR = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "tandem"), ("EMAIL", "tandem@localhost"))
}


def question_about_index(site: install.GateSite, policy: GatePolicy, *, amends: bool) -> bytes | None:
    """None where no guarded branch would gain anything."""
    with changes.opened(site.folder) as tree:
        branch = tree.git("symbolic-ref", "--quiet", "HEAD")
        name = text_of(branch.output)
        if branch.code != 0 or not policy.guards(name.removeprefix("refs/heads/")):
            return None
        changes.copy_index(tree)
        commit = _made(tree, amends=amends)
        tips = install.known_tips(site) if site.facts_file.exists() else []
        known = ["--not", *hook.guarded_globs(policy.branches), "--remotes", *tips, "--"]
        answer = tree.git(*hook.LOG, commit, *known)
        if not answer.is_good:
            raise BrokerError(Code.UNAVAILABLE, f"git log: {answer.why}", "Look at the repository.")
        log = answer.output
        here = install.hook_site(site)
        plans = hook.plan_lines(here, hook.configuration(here), [(commit, name)])
        head = here.head("hook") + f"branch={name}\n".encode("utf-8", "surrogateescape") + plans
        merges = hook.clean_merges(log, tree.environment | {"GIT_DIR": tree.must("rev-parse", "--absolute-git-dir")})
        return head + merges + b"\n" + log if log else None


def _made(tree: changes.Tree, *, amends: bool) -> str:
    head = tree.git("rev-parse", "HEAD^@") if amends else tree.git("rev-parse", "--verify", "--quiet", "HEAD")
    parents = text_of(head.output).split() if head.code == 0 else []
    merged = Path(tree.must("rev-parse", "--path-format=absolute", "--git-path", "MERGE_HEAD"))
    if merged.exists() and not amends:
        parents += os.fsdecode(merged.read_bytes()).split()
    named = [word for parent in parents for word in ("-p", parent)]
    subject = "the commit that you are about to make"
    made = tree.git("commit-tree", *named, "-m", subject, changes.written(tree), more=_AUTHOR)
    if made.code != 0:
        raise BrokerError(Code.UNAVAILABLE, f"git commit-tree: {made.why}", "Look at the repository.")
    return text_of(made.output)
