// Package vmlab tests rdsd with other RDMA software in a small emulated virtual machine:
// Linux's siw driver with librdmacm and libibverbs, rdma-core's rping, and perftest. `make
// vm` runs the tests, see README.md.
package vmlab
