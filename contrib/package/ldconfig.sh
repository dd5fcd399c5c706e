#!/bin/sh
# Package script of librds: the loader's cache learns of the library, or of its end.
command -v ldconfig >/dev/null && ldconfig
exit 0
