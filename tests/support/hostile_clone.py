"""A repository whose owner wants to harm the people who work in it."""

from pathlib import Path

# Names that Python, our libraries or we ourselves import.
MODULES = (
    *("sitecustomize", "usercustomize", "json", "uvloop", "uvicorn", "structlog", "pydantic", "sqlalchemy", "mcp"),
    *("starlette", "argparse", "http", "typing", "encodings", "asyncio", "platformdirs", "tomllib", "secrets"),
    *("gsd_review_broker", "tests", "alembic"),
)


def plant_modules(folder: Path, canary: Path) -> Path:
    """Modules that leave their name in the canary when they are imported, and then fail."""
    for name in MODULES:
        code = f"open({str(canary)!r}, 'a').write('{name} was imported\\n')\nraise SystemExit('planted')\n"
        (folder / f"{name}.py").write_text(code)
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text(code)
        (folder / name / "__main__.py").write_text(code)
    return canary
