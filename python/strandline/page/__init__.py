"""The page: what a scope's or a channel's logs say about its progress, as JSON, as HTML, and live. It imports the whole core.

:mod:`~strandline.page.look` and what it imports need no extra. :mod:`~strandline.page.render` needs Jinja2, and
:mod:`~strandline.page.server` Starlette and uvicorn too: the extra ``page`` has all three.
"""

from strandline.page.look import Looker
from strandline.page.model import Page

__all__ = ["Looker", "Page"]
