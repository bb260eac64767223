"""Forms of the report of a study."""

from typing import Literal, get_args

Form = Literal["html", "md", "svg", "pdf", "tex", "csv", "json"]
FORMS: tuple[Form, ...] = get_args(Form)
