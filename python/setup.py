"""Builds package rds: `make librds`, then `pip wheel ./python`, or `python3 setup.py build`."""
import os
import re
from pathlib import Path

from setuptools import setup


def version() -> str:
    """VERSION, or the version of librds that make has written beside it."""
    file = Path(os.environ.get("RDS_LIBRDS", Path(__file__).resolve().parent.parent / "bin" / "librds")) / "rds.pc"
    if "VERSION" in os.environ or not file.exists():
        return os.environ.get("VERSION", "")
    found = re.search("^Version: *(.*)$", file.read_text(), re.MULTILINE)
    return found[1] if found else ""


# v1.2.0-rc1 is 1.2.0rc1, v1.2.0-7-gabc is 1.2.0+7.gabc, and what is no version is 0+that.
number, candidate, rest = re.fullmatch(r"(?:v?(\d+(?:\.\d+)+)(?:-(rc\d+))?)?(.*)", version()).groups("")
rest = ".".join(re.findall("[A-Za-z0-9]+", rest))

# One file is for every Python from 3.9 on.
setup(
    name="rds",
    version=(number or "0") + candidate + ("+" + rest if rest else ""),
    description="Reliable datagrams and RDMA through rdsd, the daemon of this host",
    url="https://github.com/rdsd/rdsd",
    license="Apache-2.0",
    python_requires=">=3.9",
    install_requires=["cffi>=1.15"],
    setup_requires=["cffi>=1.15"],
    package_dir={"": "src"},
    packages=["rds"],
    package_data={"rds": ["py.typed", "*.pyi"]},
    cffi_modules=["build_rds.py:ffi"],
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
    zip_safe=False,
)
