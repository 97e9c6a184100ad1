"""Files and directories that are whole or absent: written beside their place under another name, then renamed."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what is to be at ``path``: a file, or a directory that is made there.

    It is renamed when the block ends; whatever ends the block early, an interrupt too, leaves nothing behind. The
    reader of a name sees the old file or the new one. Raises OSError as writing does.
    """
    # Chance keeps two writers apart; a file that the library for such names makes would have the mode 0600.
    draft = path.with_name(f".{path.name[:50]}.{secrets.token_hex(8)}.part")
    try:
        yield draft
        os.replace(draft, path)
    except OSError as error:
        # A full disk does not say of which file; parts of a directory are told by their place in it.
        name = str(draft) if error.filename is None else str(error.filename)
        if name.startswith(str(draft)):
            raise OSError(error.errno, error.strerror, f"{path}{name.removeprefix(str(draft))}") from error
        raise
    finally:
        if draft.is_dir():
            shutil.rmtree(draft)
        else:
            draft.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """A file's bytes."""
    with whole(path) as draft:
        draft.write_bytes(data)
