"""All op programs, family by family. Print them with `python programs.py`; needs no torch."""
import importlib
import json
import os
import pkgutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import layouts
from program import Collection


def all_programs():
    collection = Collection()
    for module in sorted(m.name for m in pkgutil.iter_modules([os.path.join(HERE, "families")])):
        importlib.import_module(f"families.{module}").programs(collection)
    found = [p.json() for p in collection.programs]
    return found + list(layouts.variants(found))


if __name__ == "__main__":
    json.dump(all_programs(), sys.stdout, indent=1)
