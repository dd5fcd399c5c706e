// Package vmlab holds the tests against other people's RDMA software: Linux's
// siw driver with librdmacm and libibverbs, rdma-core's rping, and perftest, in a
// small emulated virtual machine. `make vm` runs them; see README.md.
package vmlab
