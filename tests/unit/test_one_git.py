"""git is started in one place, with one environment, inside the gate's hook too."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Both with the options and the environment of the second, which the hook can afford to import.
PLACES = {ROOT / "src" / "gsd_review_broker" / "git" / name for name in ("program.py", "command.py")}
_ASYNC = ("create_subprocess_shell", "create_subprocess_exec")


def starts_git(source: str) -> bool:
    """Is there a list, a tuple or a call whose first word is git?"""
    for node in ast.walk(ast.parse(source)):
        words = node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []
        first = words[0] if words else None
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            continue
        if first.value.split(" ")[0] == "git" and (not isinstance(node, ast.Call) or _is_start(node)):
            return True
    return False


def _is_start(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in {"run", "Popen", "call", "check_call", "check_output", "system", *_ASYNC}


def test_no_other_place_starts_git() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    places = {file for file in files if starts_git(file.read_text("utf-8"))}
    assert places == PLACES


def test_the_search_would_notice_one() -> None:
    assert starts_git("subprocess.run(['git', 'status'])")
    assert starts_git("subprocess.Popen(('git', *words))")
    assert starts_git("os.system('git status')")
    assert starts_git("create_subprocess_exec('git', 'status')")
    assert not starts_git("print('git is there')")
