"""Compiles C programs of this folder, with the headers of libibverbs-dev and librdmacm-dev."""

import os
import pathlib
import subprocess


def build(library, folder, name):
    """Compiles NAME.c into `folder`, with links to the library under the names that programs know.
    Returns the program, and the environment to run it in; None if there is no compiler."""
    library, folder = pathlib.Path(library).resolve(), pathlib.Path(folder)
    for link in ("libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so", library.name):
        if not (folder / link).exists():
            (folder / link).symlink_to(library)
    source = pathlib.Path(__file__).with_name(f"{name}.c")
    command = [os.environ.get("CC", "cc"), "-Wall", "-g", "-o", folder / name, source,
               f"-L{folder}", "-lrdmacm", "-libverbs", "-lpthread"]
    if subprocess.run(command).returncode:
        print(f"{name}: no compiler, or no headers: install libibverbs-dev and librdmacm-dev")
        return None
    return folder / name, dict(os.environ, LD_LIBRARY_PATH=str(folder))
