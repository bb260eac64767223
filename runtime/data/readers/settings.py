"""Settings of readers: the files of each, and how their records are made."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ....extensions.parsing.trees.settings import ParsingSettings
from ....specs.findings import did_you_mean
from ....specs.wording import SettingError
from ..settings import CORPUS, Language, PathText, Settings, refuse_repeated

Paths = Annotated[tuple[PathText, ...], Field(min_length=1)]


class FilesSettings(Settings):
    """Files whose records are read in order."""

    files: Paths
    """Files below the data root."""


class DelimitedSettings(FilesSettings):
    """CSV or TSV files; the first row of each has the names of the fields."""

    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """Character between fields; `null` is a tab for names that end with `.tsv` or `.tsv.gz`, and
    otherwise a comma."""
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


class ImagesSettings(Settings):
    """Images by class: a record has the fields `image` and `class`."""

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
    """Manifests: CSV or TSV files of which one field is the path of a sound file."""

    path: str = "audio"
    """Field with the path of the sound file, below the data root."""


class HubSettings(Settings):
    """Dataset of the Hugging Face hub, read by the `datasets` library."""

    name: str = Field(min_length=1)
    """Name of the dataset, such as `owner/name`."""
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    """Commit of the dataset: 40 hexadecimal digits, so that the data cannot change."""
    split: str = Field(min_length=1)
    """Split, such as `train`."""
    config: str | None = None
    """Configuration of the dataset, if it has several."""


class MtdataSettings(Settings):
    """Parallel corpora that the mtdata library fetches: fields `source` and `target`."""

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


class TreesSettings(FilesSettings):
    """Files of bracketed trees: fields `source` (words), `target` (symbols) and `tree`."""

    decoder: Literal["sequence", "chart", "tags"] = "sequence"
    """What `target` contains: the tree written as a sequence, as a chart, or one tag a word."""
    linearization: Literal["vinyals", "tensor2tensor", "top_down"] = "vinyals"
    """The form of a `sequence`; see docs/parsing.md."""
    clean: bool = True
    """Remove traces and function tags, and put TOP around each tree."""
    malformed: Literal["refuse", "skip"] = "refuse"
    """How to treat a malformed tree: stop with an error, or skip the tree."""
    pieces: bool = False
    """Whether `target` is tokenized into pieces, which normalizes full-width brackets."""

    @property
    def parsing(self) -> ParsingSettings:
        """The settings that determine the targets."""
        return ParsingSettings(
            decoder=self.decoder,
            linearization=self.linearization,
            clean=self.clean,
            malformed=self.malformed,
        )


class PluginReaderSettings(Settings):
    """Reader that an installed package adds."""

    name: str
    """Name of the entry point in the group `weft.readers`."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Settings of the reader."""


Lines = dict[Annotated[str, Field(min_length=1)], Paths]


class Split(Settings):
    """Records of one split: exactly one reader, named by its key."""

    lines: Lines | None = Field(default=None, min_length=1)
    """Files by field, aligned line by line, such as `{"source": ["a.en"], "target": ["a.de"]}`."""
    jsonl: FilesSettings | None = None
    """Files with one JSON object on each line."""
    csv: DelimitedSettings | None = None
    """CSV or TSV files."""
    parquet: FilesSettings | None = None
    """Parquet files; needs the extra `parquet`."""
    images: ImagesSettings | None = None
    """Images by class; image files need the extra `images`."""
    audio: AudioFilesSettings | None = None
    """Sound files listed in a manifest; needs the extra `audio`."""
    hub: HubSettings | None = None
    """Dataset of the Hugging Face hub; needs the extra `hub`."""
    mtdata: MtdataSettings | None = None
    """Named parallel corpora; needs the extra `corpora`."""
    trees: TreesSettings | None = None
    """Treebanks."""
    plugin: PluginReaderSettings | None = None
    """Reader of an installed package."""
    weights: tuple[Annotated[float, Field(gt=0, le=1000)], ...] | None = None
    """How often the rows of each file occur in a training epoch (default: 1 each); 0.1 uses a
    tenth of them, a different tenth each epoch."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        """Check that there is one reader, and as many files and weights as it needs.

        Raises:
            ValueError: there are no or several readers, fields have different numbers of files,
                or there is another number of weights.
        """
        given = [name for name in READER_KEYS if getattr(self, name) is not None]
        if len(given) != 1:
            what = " and ".join(f"'{name}'" for name in given) or "none"
            msg = f"a split needs exactly one reader, but has {what}"
            known = ", ".join(READER_KEYS)
            raise SettingError(msg, *given[1:2], help_=f"name one of the readers: {known}")
        if self.lines is not None:
            counts = {name: len(files) for name, files in self.lines.items()}
            first = next(iter(counts))
            for name, count in counts.items():
                if count != counts[first]:
                    msg = f"{counts[first]} {first} files for {count} {name} files"
                    help_ = "list as many files for each field, in the same order"
                    raise SettingError(msg, "lines", name, help_=help_)
        files = self.file_count
        if self.weights is not None and files is not None and len(self.weights) != files:
            msg = f"{len(self.weights)} weights for {files} files"
            raise SettingError(msg, "weights", help_="write one weight for each file, or none")
        return self

    @property
    def reader(self) -> str:
        """Name of the reader."""
        return next(name for name in READER_KEYS if getattr(self, name) is not None)

    @property
    def full_name(self) -> str:
        """Name of the reader; `plugin NAME` for the reader of an installed package."""
        return self.reader if self.plugin is None else f"plugin {self.plugin.name}"

    @property
    def file_count(self) -> int | None:
        """Number of files, or of groups of aligned files; None if only the reader knows it."""
        if self.lines is not None:
            return len(next(iter(self.lines.values())))
        if self.images is not None:
            return len(self.images.folders or self.images.arrays)
        if self.mtdata is not None:
            return len(self.mtdata.names)
        found = getattr(getattr(self, self.reader), "files", None)
        return 1 if self.hub is not None else None if found is None else len(found)


READER_KEYS = tuple(name for name in Split.model_fields if name != "weights")
"""Keys of a split that name a reader."""
