"""Builds package rds: `make librds`, then `pip wheel ./python`, or `python3 setup.py build`."""
import os
import re

from setuptools import setup

# v1.2.0-rc1 is 1.2.0rc1, v1.2.0-7-gabc is 1.2.0+7.gabc, and what is no version is 0+that.
number, candidate, rest = re.fullmatch(r"(?:v?(\d+(?:\.\d+)+)(?:-(rc\d+))?)?(.*)", os.environ.get("VERSION", "")).groups("")
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
