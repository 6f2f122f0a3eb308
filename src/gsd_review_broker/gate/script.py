"""The text of the hook: a small shell script, since git runs it at every update of a reference."""

import shlex

MARK = "# tandem gate: only approved content lands on guarded branches. `tandem gate uninstall` removes this hook."
CHAINED = "reference-transaction.before-tandem"

_TEMPLATE = """\
#!/bin/sh
{mark}
# Only `prepared` decides; it never waits. Everything but branches passes without starting a program.
python={python}
place="${{0%/*}}"/{place}
chained={chained}
lines='' wanted=''
while IFS= read -r line; do
  lines="$lines$line
"
  case $line in *' refs/heads/'*) wanted=1 ;; esac
done
if [ -x "$chained" ]; then
  printf '%s' "$lines" | "$chained" "$@" || exit $?
fi
[ -n "$wanted" ] || exit 0
note="$place/prepared.$PPID"
gate() {{
  "$python" -I -S -c {program} "$@"
}}
case $1 in
prepared)
  if [ ! -x "$python" ]; then
    echo "tandem gate: refused, because $python is gone. Install gsd-review-broker again, or remove $0." >&2
    exit 1
  fi
  [ ! -e "$note" ] || rm -f "$note"
  printf '%s' "$lines" | gate prepared "$note" || exit 1
  ;;
committed)
  if [ -f "$note" ] && mv "$note" "$note.landed" 2>/dev/null; then
    gate landed "$note.landed" </dev/null >/dev/null 2>&1 &
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


def hook_script(*, python: str, package: str, place: str, chained: str) -> str:
    """`chained` is shell text for the path of the hook that was there before."""
    program = shlex.quote(_PROGRAM.format(package=package))
    return _TEMPLATE.format(mark=MARK, python=shlex.quote(python), place=place, chained=chained, program=program)


def pass_on_script(*, folder: str, name: str) -> str:
    return _PASSING_ON.format(mark=MARK, folder=shlex.quote(folder), name=name)
