"""How an agent is logged in, as far as its environment and files show it.

It is only a hint for people: a login may also be kept where it cannot be seen, for example in a keychain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Amazon's: for models on Bedrock.
AWS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoginFile:
    """A file in the folder that a variable names, or else in a folder below the home."""

    variable: str
    folder: str
    name: str
    # It shows a login only if one of these words is in it.
    holding: tuple[str, ...] = ()

    def is_in(self, environment: Mapping[str, str]) -> bool:
        try:
            text = self.path(environment).read_text("utf-8", "replace")
        except OSError:
            return False
        return not self.holding or any(word in text for word in self.holding)

    def path(self, environment: Mapping[str, str]) -> Path:
        chosen = environment.get(self.variable)
        return (Path(chosen) if chosen else home_in(environment) / self.folder) / self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    # Any of them is enough.
    variables: tuple[str, ...]
    files: tuple[LoginFile, ...]
    # What to do if there is none.
    advice: str
    # On macOS it keeps its login where other programs cannot look.
    in_keychain: bool = False

    def seen(self, environment: Mapping[str, str]) -> str | None:
        """What logs it in: a variable's name or a file's path."""
        for name in self.variables:
            if environment.get(name):
                return name
        return next((str(file.path(environment)) for file in self.files if file.is_in(environment)), None)


def home_in(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or environment.get("USERPROFILE") or Path.home())
