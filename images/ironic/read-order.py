"""Writes down which files Ironic reads when it starts, in that order, for the layer to hold them so.

A squashfs packs small files together by the megabyte, and keeps three of those megabytes unpacked: two thousand modules
that are read here and there have each of them unpacked again and again, for longer than Python takes to run them.
"""

import importlib.metadata
import pathlib
import sys

import ironic.cmd.singleprocess
from ironic import objects

OUT = pathlib.Path("/usr/share/foothold/read-order")

objects.register_all()
entry_points = importlib.metadata.entry_points()
for point in sorted(entry_points, key=lambda point: (point.group, point.name)):
    if point.group.startswith("ironic.hardware."):
        try:
            point.load()
        except ImportError:
            pass  # A library that the image leaves out: nothing that is switched on.

names = [str(path) for path in sorted(pathlib.Path("/usr/lib/python3/dist-packages").glob("*/entry_points.txt"))]
for module in list(sys.modules.values()):
    for name in (getattr(module, "__cached__", None), getattr(module, "__file__", None)):
        if name and name.startswith("/usr/") and pathlib.Path(name).is_file():
            names.append(name)
            break
OUT.parent.mkdir(parents=True, exist_ok=True)
OUT.write_text("".join(f"{name}\n" for name in dict.fromkeys(names)))
