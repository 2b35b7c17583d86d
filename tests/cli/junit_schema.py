"""The JUnit schema of Jenkins' xUnit plugin (junit-10.xsd), as pytest's source distribution carries it.

    python tests/cli/junit_schema.py        puts it beside the packages of this Python, where tests find it

It is fetched with pip, like the packages of tests/requirements.txt, and is part of no commit.
"""
import os
import subprocess
import sys
import tarfile
import tempfile

SOURCE = "pytest==8.4.2"
PATH = os.environ.get("MEMPLAN_JUNIT_XSD") or os.path.join(sys.prefix, "junit-10.xsd")


def fetch():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", "pytest", "--dest", folder, SOURCE], check=True)
        archive = os.path.join(folder, next(n for n in os.listdir(folder) if n.endswith(".tar.gz")))
        with tarfile.open(archive) as source:
            member = next(m for m in source.getmembers() if m.name.endswith("/testing/example_scripts/junit-10.xsd"))
            text = source.extractfile(member).read()
    with open(PATH, "wb") as f:
        f.write(text)


def validator():
    """An xmlschema.XMLSchema of it."""
    import xmlschema
    if not os.path.exists(PATH):
        raise AssertionError(f"{PATH} is missing: python tests/cli/junit_schema.py fetches it (make does)")
    return xmlschema.XMLSchema(PATH)


if __name__ == "__main__":
    fetch()
