"""Stores of prepared data: a folder, or a bucket that fsspec reaches.

A store has objects, which are named by the SHA-256 of their content and never change, and a
manifest for each preparation.  Only the protocols of `settings.STORES` are opened; accounts,
servers and further options of a bucket come from the environment of the user, never from a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....specs.files import write_beside
from ....specs.findings import InputError
from ...system.strangers import read_in

PACKAGES = {"s3": "s3fs", "gs": "gcsfs"}
"""The package that fsspec needs for a protocol."""


class UnreachableError(InputError):
    """A store cannot be reached, or lacks an object; what was transferred before stays."""

    passing = True
    """Whether the error is transient, so that what is done stays."""


class Store(ABC):
    """Where objects are, by name."""

    def __init__(self, address: str) -> None:
        """Store the address of the store, without the name of an object."""
        self.address = address

    @abstractmethod
    def read(self, name: str, most: int) -> bytes:
        """Return the content of an object, cut after `most` + 1 bytes.

        Raises:
            InputError: there is no such object, or it cannot be read.
        """

    @abstractmethod
    def has(self, name: str, size: int) -> bool:
        """Return whether there is an object of some size in bytes.

        Raises:
            InputError: the store cannot be reached.
        """

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write an object, which is complete or absent.

        Raises:
            InputError: it cannot be written.
        """


class Folder(Store):
    """A folder of this machine, or one that machines share."""

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a regular file that lies in the folder."""
        folder = Path(self.address)
        if not (folder / name).exists():
            raise _missing(self.address, name)
        return read_in(folder, name, most)

    def has(self, name: str, size: int) -> bool:
        """Return whether there is a file of some size."""
        path = Path(self.address) / name
        return path.is_file() and path.stat().st_size == size

    def write(self, name: str, content: bytes) -> None:
        """Write a file, which is complete or absent."""
        write_beside(Path(self.address) / name, content, "prepared data")


def _missing(address: str, name: str) -> UnreachableError:
    return UnreachableError(
        f"there is no '{name}'",
        location=address,
        help="compare the address with what 'weft prepare RUN --to' printed, or run it again: an"
        " upload that was interrupted has no manifest yet",
    )


class Bucket(Store):
    """A bucket and the first part of the names in it, such as `s3://bucket/wmt`."""

    def __init__(self, address: str) -> None:
        """Find the file system of the address.

        Raises:
            InputError: its package is not installed, or refuses the options of the environment.
        """
        super().__init__(address)
        protocol = address.partition("://")[0]
        package = PACKAGES.get(protocol, "fsspec")
        # Few runs read from buckets; torch requires fsspec.
        from fsspec.core import url_to_fs  # noqa: PLC0415

        try:
            system, self._prefix = url_to_fs(address)
        except ImportError as error:
            raise InputError(
                f"'{protocol}://' needs the package '{package}', which is not installed",
                location=address,
                help=f"pip install 'weft[{protocol}]'",
            ) from error
        self._system: Any = system

    def read(self, name: str, most: int) -> bytes:
        """Return the content of an object."""
        with self._reached("read", name):
            return bytes(self._system.cat_file(self._path(name), start=0, end=most + 1))

    def has(self, name: str, size: int) -> bool:
        """Return whether there is an object of some size."""
        try:
            with self._reached("read", name):
                return bool(self._system.info(self._path(name))["size"] == size)
        except UnreachableError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise

    def write(self, name: str, content: bytes) -> None:
        """Write an object; object stores show it when it is complete."""
        with self._reached("write", name):
            self._system.pipe_file(self._path(name), content)

    def _path(self, name: str) -> str:
        return f"{self._prefix.rstrip('/')}/{name}"

    @contextmanager
    def _reached(self, verb: str, name: str) -> Iterator[None]:
        """Report whatever a library of a store raises.

        Raises:
            UnreachableError: an error was raised.
        """
        protocol = self.address.partition("://")[0]
        try:
            yield
        except FileNotFoundError as error:
            if verb == "read":
                raise _missing(self.address, name) from error
            raise UnreachableError(
                "there is no such bucket", location=self.address, help="create it, or name another"
            ) from error
        except Exception as error:
            why = str(error).strip().partition("\n")[0][:200] or type(error).__name__
            denied = isinstance(error, PermissionError)
            account = f"FSSPEC_{protocol.upper()}_ANON=true reads a public bucket without one"
            raise UnreachableError(
                f"cannot {verb} '{name}': {why}",
                location=self.address,
                help=f"check the rights of your account; {account}"
                if denied
                else "check the network, the account and the server in your environment, and run"
                " the same command again to continue",
            ) from error


def store_at(address: str) -> Store:
    """Return the store at an address that `settings.checked_store` accepted.

    Raises:
        InputError: a package is not installed.
    """
    return Bucket(address) if "://" in address else Folder(address)
