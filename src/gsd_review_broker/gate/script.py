"""The text of the hook: a small shell script, since git runs it at every update of a reference."""

import shlex
from collections.abc import Sequence

from gsd_review_broker.gate.tickets import TICKET_DIFF
from gsd_review_broker.git.command import FIXED_ENVIRONMENT, FOREIGN_VARIABLES, command_line
from gsd_review_broker.settings.gate import CONFIG_VARIABLE

MARK = "# tandem gate: only approved content lands on guarded branches. `tandem gate uninstall` removes this hook."
CHAINED = "reference-transaction.before-tandem"
# What a ticket does not know of, since it was made for the broker's own policy.
_DEMANDS = (CONFIG_VARIABLE, "BROKER_GATE__EXEMPT_PATHS", "BROKER_GATE__HUMAN_PATHS", "BROKER_GATE__PLAN_FIRST")
_SUM = ("hash-object", "--no-filters", "--stdin")

_TEMPLATE = """\
#!/bin/sh
{mark}
# Only `prepared` decides; it never waits. Everything but branches passes without starting a program.
python={python}
place="${{0%/*}}"/{place}
chained={chained}
lines='' branches=0
while IFS= read -r line; do
  lines="$lines$line
"
  old=${{line%% *}}
  case $line in
  "$old $old "*) ;;
  *' refs/heads/'*) branches=$((branches + 1)) update=$line ;;
  esac
done
if [ -x "$chained" ]; then
  printf '%s' "$lines" | "$chained" "$@" || exit $?
fi
[ "$branches" -gt 0 ] || exit 0
old=${{update%% *}} new=${{update#* }}
new=${{new%% *}}
note="$place/prepared.$PPID.$new"
program={program}
# The broker leaves a ticket for a commit that it would let through: named after the branch's value before it, and
# after the sum over its parents and its records. A ticket older than the configuration does not count.
# Tickets are a broker's of this machine; where one on another machine decides, they do not count. Nor do they where the
# environment demands what the broker did not know.
tickets={tickets}
has_ticket() {{
  [ "$branches" -eq 1 ] && [ "$tickets${{BROKER_URL-}}{demands}" = count ] || return 1
  set -- "$place/tickets/$old".*
  [ -f "$1" ] || return 1
  ticket="$place/tickets/$old.$(sum_of_commit)"
  [ -f "$ticket" ] || return 1
  for file in {configuration}; do
    [ ! -e "$file" ] || [ "$ticket" -nt "$file" ] || return 1
  done
}}
sum_of_commit() {{
  unset {foreign}
  export {environment}
  {diff} "$new" -- | {sum}
}}
case $1 in
prepared)
  if [ ! -x "$python" ]; then
    echo "tandem gate: refused, because $python is gone. Install gsd-review-broker again, or remove $0." >&2
    exit 1
  fi
  if has_ticket && printf 'ticket %s\n%s\n' "${{ticket##*/}}" "$update" >"$note"; then
    exit 0
  fi
  printf '%s' "$lines" | "$python" -I -S -c "$program" prepared "$note" || exit 1
  ;;
committed)
  if [ -f "$note" ]; then
    # With `exec`, so that no shell stays and holds the output that a caller of git reads to its end.
    (exec "$python" -I -S -c "$program" landed "$note" </dev/null >/dev/null 2>&1) &
  fi
  ;;
aborted)
  [ ! -e "$note" ] || rm -f "$note"
  ;;
esac
exit 0
"""
_PROGRAM = (
    "import sys; sys.path.insert(0, {package!r}); "
    "from gsd_review_broker.gate.hook import main; sys.exit(main(sys.argv[1:]))"
)
# A hook of another set-up, called from our folder in its place.
_PASSING_ON = """\
#!/bin/sh
{mark}
hook={folder}/{name}
[ -x "$hook" ] || exit 0
exec "$hook" "$@"
"""


def hook_script(
    *, python: str, package: str, place: str, chained: str, configuration: Sequence[str], has_tickets: bool = True
) -> str:
    """`chained` is shell text for the path of the hook that was there before. `configuration` are the files that a
    ticket must be newer than."""
    return _TEMPLATE.format(
        mark=MARK,
        python=shlex.quote(python),
        place=place,
        chained=chained,
        program=shlex.quote(_PROGRAM.format(package=package)),
        configuration=shlex.join(configuration),
        tickets="count" if has_tickets else "none",
        foreign=" ".join(FOREIGN_VARIABLES),
        demands="".join(f"${{{name}-}}" for name in _DEMANDS),
        environment=" ".join(f"{name}={shlex.quote(value)}" for name, value in FIXED_ENVIRONMENT.items()),
        diff=shlex.join(command_line(TICKET_DIFF)),
        sum=shlex.join(command_line(_SUM)),
    )


def pass_on_script(*, folder: str, name: str) -> str:
    return _PASSING_ON.format(mark=MARK, folder=shlex.quote(folder), name=name)
