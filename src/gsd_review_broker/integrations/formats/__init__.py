"""The languages of clients' files, edited as text, so that foreign content keeps every byte."""

from typing import Literal

from gsd_review_broker.integrations.formats.entries import Format
from gsd_review_broker.integrations.formats.json_format import JsonFormat
from gsd_review_broker.integrations.formats.toml_format import TomlFormat

Language = Literal["json", "toml"]
FORMATS: dict[Language, Format] = {"json": JsonFormat(), "toml": TomlFormat()}
