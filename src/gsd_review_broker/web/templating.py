"""Jinja with everything escaped, and the few functions that pages share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.domain.text import HUMAN_PREFIX
from gsd_review_broker.domain.words import RESOLUTIONS, Severity, Verdict, values
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.service.wire.hints import Wording, hint_of
from gsd_review_broker.web.addresses import LineName
from gsd_review_broker.web.diff.rendered_markdown import prose
from gsd_review_broker.web.text import STATUS_MARKS, STATUS_WORDS, plain, visible

_FOLDER = Path(__file__).parent / "templates"
_SHORT_DIGEST = len("sha256:") + 12


class Templates:
    def __init__(self, *, static: Callable[[str], str], shared: dict[str, Any]) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "visible": visible,
            "plain": plain,
            "markdown": prose,
            "moment": moment,
            "short_digest": short_digest,
            "person": without_prefix,
            "line_number": line_number_in,
            "hint": page_hint,
            "words": lambda text: str(text).replace("_", " "),
            "pretty": lambda value: json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True),
        }
        self._environment.globals |= {  # pyright: ignore[reportAttributeAccessIssue] - jinja2's type leaves it out
            "static": static,
            "status_words": STATUS_WORDS,
            "status_marks": STATUS_MARKS,
            "severities": list(Severity),
            "verdicts": values(Verdict),
            "resolutions": RESOLUTIONS,
            **shared,
        }

    def render(self, name: str, facts: dict[str, Any]) -> str:
        return self._environment.get_template(name).render(facts)

    def macro(self, name: str, macro: str) -> Callable[..., Markup]:
        return getattr(self._environment.get_template(name).module, macro)


def page_hint(error: BrokerError) -> str:
    return hint_of(error, Wording.PAGES)


def moment(value: Milliseconds | str) -> Markup:
    """Show the time; scripts replace it with how long ago that was."""
    text = value if isinstance(value, str) else iso(value)
    shown = f"{text[:10]} {text[11:19]} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(text, shown, shown[:16])


def line_number_in(name: str) -> str:
    line = LineName.of(name)
    return str(line.number) if line else ""


def short_digest(digest: str) -> str:
    return digest[:_SHORT_DIGEST]


def without_prefix(identity: str) -> str:
    return identity.removeprefix(HUMAN_PREFIX)
