"""Builds package rds: `make librds`, then `pip wheel ./python`, or `python3 setup.py build`."""
import os

from setuptools import setup

# One file is for every Python from 3.9 on.
setup(
    name="rds",
    version=os.environ.get("VERSION", "0"),
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
