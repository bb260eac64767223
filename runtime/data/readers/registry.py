"""Reader registry: every reader that a run may use.

To register a reader, add a line here.  Installed packages add readers through the entry-point group
`weft.readers`; a run can never name code.
"""

from __future__ import annotations

from ...system.plugins import Plugins
from .reader_settings import ReaderSettings

SHIPPED = {
    "lines": ".reader_settings:LinesSettings",
    "jsonl": ".reader_settings:JsonLinesSettings",
    "csv": ".reader_settings:DelimitedSettings",
    "parquet": ".reader_settings:ParquetSettings",
    "images": ".reader_settings:ImagesSettings",
    "audio": ".reader_settings:AudioFilesSettings",
    "hub": ".reader_settings:HubSettings",
    "mtdata": ".reader_settings:MtdataSettings",
    "synthetic": ".reader_settings:SyntheticSettings",
}
"""Name of a shipped reader to `file:Class`, relative to this folder."""

READERS: Plugins[ReaderSettings] = Plugins(
    "reader", "weft.readers", ReaderSettings, SHIPPED, __package__
)
"""All readers; a split names one by its key."""
