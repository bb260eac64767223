"""Settings of readers: the files of each, and how their records are made."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from ....specs.findings import did_you_mean, pointer
from ....specs.wording import SettingError
from ..settings import CORPUS, Language, PathText, Settings, refuse_repeated

Paths = Annotated[tuple[PathText, ...], Field(min_length=1)]


class ReaderSettings(Settings):
    """Base class of the settings of a reader."""

    module: ClassVar[str]
    """Class of the reader, a `Reader`, as `file:Class`, relative to the package of the settings if
    it begins with a dot; it is imported when the reader is needed."""
    fetched: ClassVar[bool] = False
    """Whether files are fetched when the data is prepared, so that they need not exist before."""
    folders_of_files: ClassVar[bool] = False
    """Whether the reader reads folders of files."""
    quick: ClassVar[bool] = False
    """Whether the first record of a file is read quickly, so that `weft check` reads it."""

    def fields(self) -> tuple[str, ...] | None:
        """Return the fields of the records; None if only the files tell."""
        return None

    def place_of(self, file: str) -> str:
        """Return the JSON Pointer of a file in these settings; `""` if it is not named there."""
        files = getattr(self, "files", ())
        return pointer("files", files.index(file)) if file in files else ""


class FilesSettings(ReaderSettings):
    """Files whose records are read in order."""

    files: Paths
    """Files below the data root."""


class LinesSettings(ReaderSettings):
    """Files by field, aligned line by line, such as `{"source": ["a.en"], "target": ["a.de"]}`."""

    model_config = ConfigDict(extra="allow")
    module: ClassVar[str] = ".lines:LinesReader"
    quick: ClassVar[bool] = True

    __pydantic_extra__: dict[str, Paths]

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names of the files by field."""
        return self.__pydantic_extra__

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        """Check that there are fields, with as many files each.

        Raises:
            SettingError: there are none, or fields have different numbers of files.
        """
        if not self.groups or "" in self.groups:
            msg = "'lines' must be an object with at least one key"
            help_ = 'name the files of each field, such as {"source": ["a.en"]}'
            raise SettingError(msg, *self.groups, help_=help_)
        [(first, files), *others] = self.groups.items()
        for name, group in others:
            if len(group) != len(files):
                msg = f"{len(files)} {first} files for {len(group)} {name} files"
                help_ = "list as many files for each field, in the same order"
                raise SettingError(msg, name, help_=help_)
        return self

    def fields(self) -> tuple[str, ...]:
        """Return the fields."""
        return tuple(self.groups)

    def place_of(self, file: str) -> str:
        """Return the JSON Pointer of a file in these settings."""
        for field, files in self.groups.items():
            if file in files:
                return pointer(field, files.index(file))
        return ""


class SyntheticSettings(ReaderSettings):
    """Texts that a checkpoint wrote with `weft synthesize`, as lines of the fields of a run."""

    module: ClassVar[str] = ".synthetic:SyntheticReader"
    quick: ClassVar[bool] = True

    folder: PathText
    """Folder below the data root; its texts must be as they were written."""


class JsonLinesSettings(FilesSettings):
    """Files with one JSON object on each line."""

    module: ClassVar[str] = ".jsonl:JsonLinesReader"
    quick: ClassVar[bool] = True


class ParquetSettings(FilesSettings):
    """Parquet files; needs the extra `parquet`."""

    module: ClassVar[str] = ".parquet:ParquetReader"


class DelimitedSettings(FilesSettings):
    """CSV or TSV files; the first row of each has the names of the fields."""

    module: ClassVar[str] = ".delimited:DelimitedReader"
    quick: ClassVar[bool] = True

    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """Character between fields; `null` is what a first line `sep=;` declares, a tab for names that
    end with `.tsv` or `.tsv.gz`, and otherwise a comma."""
    quoting: bool = True
    """Whether double quotes enclose fields that contain the delimiter or line feeds."""
    names: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Names of the fields, if the files have no first row with them."""

    @field_validator("names")
    @classmethod
    def _check_names(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Check that each field has its own name.

        Raises:
            ValueError: a name is repeated.
        """
        refuse_repeated(names or (), "field")
        return names

    @field_validator("delimiter")
    @classmethod
    def _check_delimiter(cls, value: str | None) -> str | None:
        """Check that the delimiter can stand between fields.

        Raises:
            ValueError: it is a quote, or ends a line.
        """
        if value is not None and value in '"\r\n':
            msg = f"{value!r} cannot separate fields"
            raise SettingError(msg, help_="use another character, such as ',' or ';'")
        return value


class ImagesSettings(ReaderSettings):
    """Images by class, as the fields `image` and `class`; image files need the extra `images`."""

    module: ClassVar[str] = ".images:ImagesReader"
    folders_of_files: ClassVar[bool] = True

    folders: tuple[PathText, ...] = ()
    """Folders below the data root, each with one sub-folder of images for each class."""
    arrays: tuple[PathText, ...] = ()
    """`.npz` files instead; each array is a field, and its first axis counts the records."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        """Check that there are folders or arrays.

        Raises:
            ValueError: there are none, or both.
        """
        if bool(self.folders) == bool(self.arrays):
            msg = "images need either 'folders' or 'arrays'"
            raise SettingError(msg, help_="give one of the two")
        return self


class AudioFilesSettings(DelimitedSettings):
    """Sound files listed in a manifest, a CSV or TSV file; needs the extra `audio`."""

    module: ClassVar[str] = ".audio:AudioReader"

    path: str = "audio"
    """Field with the path of the sound file, below the data root."""


class HubSettings(ReaderSettings):
    """Dataset of the Hugging Face hub, read by the `datasets` library; needs the extra `hub`."""

    module: ClassVar[str] = ".hub:HubReader"

    name: str = Field(min_length=1)
    """Name of the dataset, such as `owner/name`."""
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    """Commit of the dataset: 40 hexadecimal digits, so that the data cannot change."""
    split: str = Field(min_length=1)
    """Split, such as `train`."""
    config: str | None = None
    """Configuration of the dataset, if it has several."""


class MtdataSettings(ReaderSettings):
    """Parallel corpora of mtdata, as `source` and `target`; needs the extra `corpora`."""

    module: ClassVar[str] = ".mtdata:MtdataReader"
    fetched: ClassVar[bool] = True

    names: Annotated[tuple[Annotated[str, Field(pattern=CORPUS)], ...], Field(min_length=1)]
    """Names of the corpora."""
    languages: tuple[Language, Language]
    """Source and target language, such as `eng` and `deu`."""
    digests: dict[str, str] = Field(default_factory=dict)
    """Required SHA-256 of corpora, by name; corpora without an entry are not checked."""

    @model_validator(mode="after")
    def _check_digests(self) -> Self:
        """Check that each digest belongs to a corpus.

        Raises:
            ValueError: a digest has no corpus.
        """
        if unknown := self.digests.keys() - set(self.names):
            name = min(unknown)
            msg = f"'digests' has '{name}', which is not in 'names'"
            raise SettingError(msg, "digests", name, help_=did_you_mean(name, self.names))
        return self
